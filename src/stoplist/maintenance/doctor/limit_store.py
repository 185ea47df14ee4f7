"""The limit store: whether it answers in time, decides, and is set up so that it forgets nothing."""

from stoplist.errors import SettingsError
from stoplist.limits.opening import IN_PROCESS
from stoplist.limits.store import LimitStore, StoreLost
from stoplist.limits.store_info import read_store_info
from stoplist.maintenance.doctor.finding import Finding, ok, warning, wrong
from stoplist.settings import Settings

CHECK = "limit store"
_TRIES = 2


async def limit_store(settings: Settings) -> Finding:
    """Wrong where it does not decide, is a replica, or may throw away what it counts."""
    url = settings.limits_url
    if url is None or url == IN_PROCESS:
        return ok(CHECK, "Limits are counted in the server process: right for one process, and only for one.")
    try:
        lost = await _lost(url)
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
    return _judged(facts)


def _judged(facts: dict[str, str] | None) -> Finding:
    if facts is None:
        return warning(CHECK, "It decides; whether it may throw counts away cannot be seen (its INFO is not allowed).")
    if facts.get("maxmemory", "0") != "0" and facts.get("maxmemory_policy") != "noeviction":
        return wrong(
            CHECK,
            "It decides, but throws counts away when its memory is full, and limits are then exceeded: "
            "set maxmemory-policy noeviction.",
        )
    return ok(CHECK, "It decides in time, is a primary, and throws nothing away.")


async def _lost(url: str) -> StoreLost | None:
    """Why the store does not decide in the time that a server gives it; None where it does."""
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
