"""`stoplist propagation`: how far each key has followed each feed."""

import sys
from typing import Any

import click

from stoplist.cli.context import data_dir_option, run, settings_of
from stoplist.cli.printing import json_option, print_records, rfc3339
from stoplist.proof.propagation import KeyPropagation, propagation
from stoplist.unsubscribes.model import OptOutStores

_COLUMNS = (
    "key",
    "org_slug",
    "channel",
    "group",
    "standing",
    "position",
    "changes_behind",
    "oldest_age",
    "last_asked_at",
)


@click.command("propagation")
@click.option("--org", "org_slug", metavar="SLUG", help="Only the feeds of this organization.")
@data_dir_option
@json_option
def command(org_slug: str | None, data_dir: str | None, as_json: bool) -> None:
    """Show how far each key has followed each feed, and which keys are behind.

    A key is behind if it has lacked a change for longer than STOPLIST_PROPAGATION_HOURS (48); then the exit status is
    1. Only keys that have followed a feed, or are marked as having to, can be behind. Servers write positions once a
    minute.
    """
    hours = settings_of(data_dir).propagation_hours

    async def work(context: Any) -> tuple[list[KeyPropagation], int]:
        stores = OptOutStores(database=context.database, clock=context.clock, secret_keys=())
        found = await propagation(context.actor, stores, hours=hours, org_slug=org_slug)
        return found, context.clock.now_ms()

    found, now_ms = run(data_dir, work)
    print_records(
        [_to_record(one, now_ms, as_json=as_json) for one in found],
        columns=_COLUMNS,
        as_json=as_json,
        if_empty="There is no feed yet, or no key that may read one.",
    )
    if any(one.is_behind for one in found):
        sys.exit(1)


def _to_record(one: KeyPropagation, now_ms: int, *, as_json: bool) -> dict[str, Any]:
    oldest_s = None if one.oldest_ms is None else max(0, (now_ms - one.oldest_ms) // 1_000)
    record = {
        "client_id": one.client_id,
        "label": one.label,
        "org_slug": one.org_slug,
        "channel": one.channel,
        "group_id": one.group_id,
        "standing": one.standing,
        "mark": one.mark,
        "position": one.position,
        "changes_behind": one.changes_behind,
        "oldest_seconds": oldest_s,
        "reads_anew_since": rfc3339(one.reads_anew_ms),
        "last_asked_at": rfc3339(one.asked_ms),
    }
    if as_json:
        return record
    age = None if oldest_s is None else f"{oldest_s // 3_600} h {oldest_s % 3_600 // 60} min"
    return record | {"key": f"{one.label} ({one.client_id})", "group": one.group_name, "oldest_age": age}
