"""`stoplist submission`: shows the result of a batch, and reverses it."""

import sys
from typing import Any

import click
import msgspec

from stoplist.cli.context import CommandContext, data_dir_option, run
from stoplist.cli.printing import json_option, print_line, print_record, print_records, rfc3339
from stoplist.errors import Refused
from stoplist.records.reversal import LeftOut, count_reversal, left_out, reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.records.submissions import SubmissionDetails, find_submission
from stoplist.unsubscribes.model import OptOutStores

_PAGE_SIZE = 1_000


@click.group("submission")
def command() -> None:
    """Show and reverse submissions, the batches of opt-outs that partners and people sent.

    The answer to a batch contains its submission_id, and so does the history of a record.
    """


@command.command("show")
@click.argument("submission_id")
@data_dir_option
@json_option
def show(submission_id: str, data_dir: str | None, as_json: bool) -> None:
    """Show a submission.

    Shows who sent it, when and from where, and what it changed.
    """
    details = run(data_dir, lambda context: find_submission(context.actor, context.database, submission_id))
    print_record(_to_record(details, as_json=as_json), as_json=as_json)


@command.command("reverse")
@click.argument("submission_id")
@click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask. Required without a terminal.")
@data_dir_option
@json_option
def reverse_(submission_id: str, is_confirmed: bool, data_dir: str | None, as_json: bool) -> None:
    """Take a submission back.

    Each record returns to its former state. A record that did not exist before is resubscribed with the reason
    `correction`, and any opt-out still wins over it. Records that were sent again or changed since are left out, and
    listed. Partners see the reversal as changes; nothing is deleted. The counts are shown first. If they have changed
    by the time you confirm them, nothing is done.
    """
    expected = None if is_confirmed else _confirm(submission_id, data_dir)
    result, others = run(data_dir, lambda context: _reverse(context, submission_id, expected))
    if as_json:
        print_record(_result_record(submission_id, result, others), as_json=True)
        return
    print_line(_summary(result))
    if others:
        print_line()
        print_records(
            _left_out_records(others), columns=("address", "why", "status", "reason"), as_json=False, if_empty=""
        )


def _confirm(submission_id: str, data_dir: str | None) -> Reversal:
    """Show the counts and return them once confirmed; Refused without a terminal, or if the answer is no."""
    counts = run(data_dir, lambda context: count_reversal(context.actor, _stores(context), submission_id))
    if not counts.changes:
        return counts
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        raise Refused(
            f"This would take back {_records(counts.changes)} and leave out {counts.left_out:,}. Nothing was changed: "
            "without a terminal, confirm with --yes."
        )
    for line in _count_lines(counts):
        click.echo(line, err=True)
    click.echo("Take them back? [y/N] ", nl=False, err=True)
    # Not click.confirm, which also writes to stdout; stdout is for the result.
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("Nothing was changed.")
    return counts


async def _reverse(
    context: CommandContext, submission_id: str, expected: Reversal | None
) -> tuple[Reversal, list[LeftOut]]:
    stores = _stores(context)
    result = await reverse(context.actor, stores, submission_id, expected=expected)
    others: list[LeftOut] = []
    after_seq = None
    while page := await left_out(context.actor, stores, submission_id, after_seq=after_seq, limit=_PAGE_SIZE):
        others += page
        after_seq = page[-1].seq
    return result, others


def _stores(context: CommandContext) -> OptOutStores:
    return OptOutStores(database=context.database, clock=context.clock, secret_keys=())


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()


def _count_lines(counts: Reversal) -> list[str]:
    return [
        f"{counts.restored:>9,}  would return to their former state",
        f"{counts.corrected:>9,}  did not exist before: would be resubscribed with the reason `correction`",
        f"{counts.superseded:>9,}  would be left out: changed since",
        f"{counts.confirmed:>9,}  would be left out: sent again since",
    ]


def _summary(result: Reversal) -> str:
    left = (
        f"Left out: {result.left_out:,} (changed since: {result.superseded:,}, sent again since: {result.confirmed:,})."
    )
    if result.submission_id is None:
        earlier = f" Taken back before: {_records(result.taken_back)}." if result.taken_back else ""
        return f"Nothing was taken back: no record depends on this submission alone.{earlier} {left}"
    return (
        f"Taken back by {result.submission_id}: {_records(result.changes)} "
        f"(former state restored: {result.restored:,}, did not exist before: {result.corrected:,}). {left}"
    )


def _records(number: int) -> str:
    return f"{number:,} record{'' if number == 1 else 's'}"


def _result_record(submission_id: str, result: Reversal, others: list[LeftOut]) -> dict[str, Any]:
    return {
        "submission_id": submission_id,
        "reversed_by": result.submission_id,
        "restored": result.restored,
        "corrected": result.corrected,
        "superseded": result.superseded,
        "confirmed": result.confirmed,
        "taken_back": result.taken_back,
        "left_out": _left_out_records(others),
    }


def _left_out_records(others: list[LeftOut]) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(other) for other in others]


def _to_record(details: SubmissionDetails, *, as_json: bool) -> dict[str, Any]:
    reversals = [
        {"submission_id": submission_id, "reversed_at": rfc3339(at_ms)} for submission_id, at_ms in details.reversed
    ]
    return {
        "submission_id": details.submission_id,
        "org_slug": details.org_slug,
        "channel": details.channel,
        "group_id": details.group_id,
        "group_name": details.group_name,
        "actor_kind": details.actor_kind,
        "actor_id": details.actor_id,
        "request_id": details.request_id,
        "source_ip": details.source_ip,
        "received_at": rfc3339(details.received_ms),
        "received": details.received,
        "created": details.created,
        "updated": details.updated,
        "unchanged": details.unchanged,
        "outranked": details.outranked,
        "rejected": details.rejected,
        "first_seq": details.first_seq,
        "last_seq": details.last_seq,
        "reversed_by": reversals
        if as_json
        else [f"{each['submission_id']} at {each['reversed_at']}" for each in reversals] or None,
        "reverses": details.reverses,
    }
