"""`stoplist submission`: what became of a batch, and how to take it back."""

import sys
from typing import Any

import click
import msgspec

from stoplist.cli.context import Opened, data_dir_option, run
from stoplist.cli.printing import json_option, print_line, print_record, print_records, rfc3339
from stoplist.errors import Refused
from stoplist.records.reversal import LeftOut, count_reversal, left_out, reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.records.submissions import SubmissionDetails, find_submission
from stoplist.unsubscribes.model import OptOutStores

_AT_ONCE = 1_000


@click.group("submission")
def command() -> None:
    """Submissions: the batches of opt-outs that partners and people sent.

    A submission_id stands in the answer to a batch, and in the history of a record.
    """


@command.command("show")
@click.argument("submission_id")
@data_dir_option
@json_option
def show(submission_id: str, data_dir: str | None, as_json: bool) -> None:
    """Show a submission: who sent it, when and from where, and what it changed."""
    found = run(data_dir, lambda opened: find_submission(opened.actor, opened.database, submission_id))
    print_record(_shown(found, as_json=as_json), as_json=as_json)


@command.command("reverse")
@click.argument("submission_id")
@click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask; needed where there is no terminal.")
@data_dir_option
@json_option
def reverse_(submission_id: str, is_confirmed: bool, data_dir: str | None, as_json: bool) -> None:
    """Take a submission back, as far as nobody has sent or changed its records since.

    Each record returns to what it was before; where it was not there before, it is resubscribed with the reason
    `correction`, and any opt-out still wins. Partners see these as changes. Nothing is deleted, and what is left out is
    listed. The counts are shown first; if they have changed when you confirm them, nothing is done.
    """
    expected = None if is_confirmed else _asked(submission_id, data_dir)
    done, others = run(data_dir, lambda opened: _reversed(opened, submission_id, expected))
    if as_json:
        print_record(_done(submission_id, done, others), as_json=True)
        return
    print_line(_told(done))
    if others:
        print_line()
        print_records(_listed(others), columns=("address", "why", "status", "reason"), as_json=False, none="")


def _asked(submission_id: str, data_dir: str | None) -> Reversal:
    """What the person has seen and confirmed; Refused where there is nobody to ask, or they say no."""
    counts = run(data_dir, lambda opened: count_reversal(opened.actor, _stores(opened), submission_id))
    if not counts.changes:
        return counts
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        raise Refused(
            f"This would take back {_records(counts.changes)} and leave out {counts.left_out:,}, and nothing was "
            "changed: without a terminal to ask on, it needs --yes."
        )
    for line in _counted(counts):
        click.echo(line, err=True)
    click.echo("Take them back? [y/N] ", nl=False, err=True)
    # Not click.confirm, which writes to stdout as well: that is for what was done.
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("Nothing was changed.")
    return counts


async def _reversed(opened: Opened, submission_id: str, expected: Reversal | None) -> tuple[Reversal, list[LeftOut]]:
    stores = _stores(opened)
    done = await reverse(opened.actor, stores, submission_id, expected=expected)
    others: list[LeftOut] = []
    after_seq = None
    while some := await left_out(opened.actor, stores, submission_id, after_seq=after_seq, limit=_AT_ONCE):
        others += some
        after_seq = some[-1].seq
    return done, others


def _stores(opened: Opened) -> OptOutStores:
    return OptOutStores(database=opened.database, clock=opened.clock, secret_keys=())


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()


def _counted(counts: Reversal) -> list[str]:
    """The counts before a reversal, a line each."""
    return [
        f"{counts.restored:>9,}  would return to what they were before",
        f"{counts.corrected:>9,}  were not there before: resubscribed, with the reason `correction`",
        f"{counts.superseded:>9,}  would be left out: a later change stands there",
        f"{counts.confirmed:>9,}  would be left out: sent again since",
    ]


def _told(done: Reversal) -> str:
    left = f"Left out: {done.left_out:,} (changed since: {done.superseded:,}, sent again since: {done.confirmed:,})."
    if done.submission_id is None:
        earlier = f" Taken back before: {_records(done.taken_back)}." if done.taken_back else ""
        return f"Nothing was taken back: no record stands on this submission alone.{earlier} {left}"
    return (
        f"Taken back by {done.submission_id}: {_records(done.changes)} "
        f"(as before: {done.restored:,}, not there before: {done.corrected:,}). {left}"
    )


def _records(number: int) -> str:
    return f"{number:,} record{'' if number == 1 else 's'}"


def _done(submission_id: str, done: Reversal, others: list[LeftOut]) -> dict[str, Any]:
    return {
        "submission_id": submission_id,
        "reversed_by": done.submission_id,
        "restored": done.restored,
        "corrected": done.corrected,
        "superseded": done.superseded,
        "confirmed": done.confirmed,
        "taken_back": done.taken_back,
        "left_out": _listed(others),
    }


def _listed(others: list[LeftOut]) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(other) for other in others]


def _shown(found: SubmissionDetails, *, as_json: bool) -> dict[str, Any]:
    by = [{"submission_id": submission_id, "reversed_at": rfc3339(at_ms)} for submission_id, at_ms in found.reversed]
    return {
        "submission_id": found.submission_id,
        "org_slug": found.org_slug,
        "channel": found.channel,
        "group_id": found.group_id,
        "group_name": found.group_name,
        "actor_kind": found.actor_kind,
        "actor_id": found.actor_id,
        "request_id": found.request_id,
        "source_ip": found.source_ip,
        "received_at": rfc3339(found.received_ms),
        "received": found.received,
        "created": found.created,
        "updated": found.updated,
        "unchanged": found.unchanged,
        "outranked": found.outranked,
        "rejected": found.rejected,
        "first_seq": found.first_seq,
        "last_seq": found.last_seq,
        "reversed_by": by if as_json else [f"{each['submission_id']} at {each['reversed_at']}" for each in by] or None,
        "reverses": found.reverses,
    }
