"""Names the keys that have lacked a change for longer than the propagation limit."""

from collections.abc import Sequence
from typing import Any

from stoplist.clock import Clock
from stoplist.db import schema
from stoplist.db.opening import sqlite_path
from stoplist.db.sqlite_file import open_for_inspection
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, warning
from stoplist.maintenance.doctor.pair import opened_databases
from stoplist.proof.propagation import WATCHER, KeyPropagation, propagation
from stoplist.settings import Settings
from stoplist.unsubscribes.model import OptOutStores

_CHECK = "propagation"
_SHOWN, _SINCE = 5, 15


async def propagated(settings: Settings) -> Finding:
    """Return the finding on all keys and feeds, without writing to the database."""
    try:
        return assess_propagation(await _read(settings), hours=settings.propagation_hours)
    except (OSError, SettingsError, StoreUnavailable) as error:
        return not_checked(_CHECK, f"The positions cannot be read: {str(error).rstrip('.')}.")


def assess_propagation(found: Sequence[KeyPropagation], *, hours: int) -> Finding:
    """Return the finding on the standing of all keys: a warning that names those that are behind."""
    behind = [one for one in found if one.is_behind]
    if not behind:
        watched = sum(one.is_watched for one in found)
        return ok(
            _CHECK, f"All readers of feeds have taken every change of more than {hours} h ago (readers: {watched})."
        )
    names = ", ".join(f"{one.label} ({one.client_id}) of {one.org_slug}, {one.channel}" for one in behind[:_SHOWN])
    more = f" and {len(behind) - _SHOWN} more" if len(behind) > _SHOWN else ""
    return warning(
        _CHECK,
        f"Behind by more than {hours} h (STOPLIST_PROPAGATION_HOURS): {names}{more}. People who opted out may still be "
        "written to. `stoplist propagation` shows how far each key has followed; ask those who run its program.",
    )


async def _read(settings: Settings) -> list[KeyPropagation]:
    path = sqlite_path(settings.database_url)
    if path is not None:
        with open_for_inspection(path) as file:
            return await _of_source(file, settings)
    async with opened_databases(settings) as database:
        return await _of_source(database, settings)


async def _of_source(source: Any, settings: Settings) -> list[KeyPropagation]:
    """Return what a database shows, or a file that is open for inspection, which can read alone."""
    deployment = await schema.read(source)
    if deployment is None or deployment.schema_version < _SINCE:
        raise SettingsError("the schema has none yet, so run `stoplist migrate`")
    stores = OptOutStores(database=source, clock=Clock(), secret_keys=())
    return await propagation(WATCHER, stores, hours=settings.propagation_hours, only_watched=True)
