"""Checks the limit store: it answers in time, decides, and does not evict counts."""

from stoplist.errors import SettingsError
from stoplist.limits.opening import IN_PROCESS
from stoplist.limits.store import LimitStore, StoreLost
from stoplist.limits.store_info import read_store_info
from stoplist.maintenance.doctor.finding import Finding, ok, warning, wrong
from stoplist.settings import Settings

CHECK = "limit store"
_TRIES = 2


async def limit_store(settings: Settings) -> Finding:
    """Check the limit store: wrong if it does not decide, is a replica, or may evict counts."""
    url = settings.limits_url
    if url is None or url == IN_PROCESS:
        return ok(CHECK, "Limits are counted in the server process, which is right for a single process only.")
    try:
        lost = await _check_decisions(url)
    except SettingsError as error:
        return wrong(CHECK, error.text)
    facts = await read_store_info(url)
    if facts is not None and facts.get("role") not in (None, "master"):
        return wrong(CHECK, "STOPLIST_LIMITS_URL names a replica, which cannot count: name the primary.")
    if lost is not None:
        return wrong(
            CHECK,
            f"The limit store does not decide ({lost}), so each server counts alone: check that it runs, and the host, "
            "port and password of STOPLIST_LIMITS_URL.",
        )
    return _assess(facts)


def _assess(facts: dict[str, str] | None) -> Finding:
    if facts is None:
        return warning(CHECK, "It decides. Whether it may evict counts is unknown, because its INFO is not allowed.")
    if facts.get("maxmemory", "0") != "0" and facts.get("maxmemory_policy") != "noeviction":
        return wrong(
            CHECK,
            "It decides, but evicts counts when its memory is full, and limits are then exceeded: "
            "set maxmemory-policy noeviction.",
        )
    return ok(CHECK, "It decides in time, is a primary, and evicts nothing.")


async def _check_decisions(url: str) -> StoreLost | None:
    """Return why the store does not decide within the time a server allows; None if it does."""
    store = LimitStore.at(url)
    try:
        for tries_left in reversed(range(_TRIES)):
            try:
                await store.check()
            except StoreLost as lost:
                if not tries_left:
                    return lost
            else:
                return None
    finally:
        await store.close()
    return None
