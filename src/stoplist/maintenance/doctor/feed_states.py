"""Compares the stored states of all feeds with their records, which `stoplist doctor --deep` reads completely."""

from stoplist.db import schema
from stoplist.db.opening import sqlite_path
from stoplist.db.sqlite_file import open_for_inspection
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, wrong
from stoplist.maintenance.doctor.pair import opened_databases
from stoplist.proof.feed_states import Comparison, compare_states
from stoplist.settings import Settings

_CHECK = "states of feeds"
_SHOWN, _SINCE = 5, 10


async def feed_states(settings: Settings) -> Finding:
    """Return the finding on the states of all feeds, without writing to the database."""
    try:
        return assess(await _compare(settings))
    except (OSError, SettingsError, StoreUnavailable) as error:
        return not_checked(_CHECK, f"The feeds cannot be read: {str(error).rstrip('.')}.")


def assess(compared: Comparison) -> Finding:
    """Return the finding on a comparison."""
    if compared.differing:
        feeds = ", ".join(map(str, compared.differing[:_SHOWN]))
        return wrong(
            _CHECK,
            f"{len(compared.differing)} of {compared.compared} differ from their records (feed_id {feeds}): rows were "
            "changed by something other than Stoplist, or the database is damaged. Compare with a backup; partners' "
            "mirrors report such feeds as diverged.",
        )
    rest = f"; {compared.open} have none yet, or changed while they were read" if compared.open else ""
    return ok(_CHECK, f"{compared.compared} are those of the records{rest}.")


async def _compare(settings: Settings) -> Comparison:
    path = sqlite_path(settings.database_url)
    if path is not None:
        with open_for_inspection(path) as file:
            await _require_states(file)
            return await compare_states(file)
    async with opened_databases(settings) as database:
        await _require_states(database)
        return await compare_states(database)


async def _require_states(source: schema.RowSource) -> None:
    deployment = await schema.read(source)
    if deployment is None or deployment.schema_version < _SINCE:
        raise SettingsError("the schema has none yet, so run `stoplist migrate`")
