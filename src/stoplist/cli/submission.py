"""`stoplist submission`: lists batches, shows the result of one, and reverses it."""

from typing import Any

import click
import msgspec

from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import CommandContext, data_dir_option, run
from stoplist.cli.parameters import SINCE, UNTIL
from stoplist.cli.printing import json_option, print_line, print_record, print_records, rfc3339
from stoplist.cli.reversal_dialog import confirm_reversal, reversal_summary
from stoplist.records.reversal import LeftOut, count_reversal, left_out, reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.records.submission_list import ListedSubmission, list_submissions
from stoplist.records.submissions import SubmissionDetails, SubmissionSummary, find_submission
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.erased import digest_of
from stoplist.unsubscribes.model import OptOutStores

_PAGE_SIZE = 1_000
_MAX_LISTED = 10_000


@click.group("submission", cls=CommandGroup)
def command() -> None:
    """List, show and reverse submissions, the batches of opt-outs that partners and people sent.

    The answer to a batch contains its submission_id, and so does the history of a record.
    """


@command.command("list")
@click.option("--org", "org_slug", metavar="SLUG", help="Only those of this organization.")
@click.option("--channel", type=click.Choice(list(CHANNELS)), help="Only those on this channel.")
@click.option(
    "--key",
    "client_id",
    metavar="CLIENT_ID",
    help="Only those of this key, or link key. Opt-outs by links are listed with their link key alone.",
)
@click.option("--since", "from_ms", type=SINCE, help="Only those received from this time or day (UTC) on.")
@click.option(
    "--until", "until_ms", type=UNTIL, help="Only those received before this time, or up to the end of this day."
)
@data_dir_option
@json_option
def list_(
    org_slug: str | None,
    channel: str | None,
    client_id: str | None,
    from_ms: int | None,
    until_ms: int | None,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """List submissions, newest first.

    What one key sent on one day: --key CLIENT_ID --since 2026-03-01 --until 2026-03-01. At most 10,000 are listed.
    """

    async def work(context: CommandContext) -> tuple[list[ListedSubmission], bool]:
        found: list[ListedSubmission] = []
        before = None
        while len(found) < _MAX_LISTED:
            page = await list_submissions(
                context.actor,
                context.database,
                org_slug=org_slug,
                channel=CHANNELS[channel] if channel else None,
                client_id=client_id,
                from_ms=from_ms,
                until_ms=until_ms,
                before=before,
                limit=_PAGE_SIZE,
            )
            found += page.submissions
            before = page.older
            if before is None:
                return found, False
        return found, True

    found, has_more = run(data_dir, work)
    print_records(
        [_listed_record(one) for one in found],
        columns=("submission_id", "org_slug", "channel", "sent_by", "received_at", "received", "created", "updated"),
        as_json=as_json,
        if_empty="No submissions were found.",
    )
    if has_more:
        click.echo(f"These are the newest {len(found):,}. Narrow them by --since and --until to see others.", err=True)


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

    Each record returns to its former state. A record that did not exist before is withdrawn: `resubscribed` with the
    reason `correction`, which is no consent, and any opt-out still wins over it. Records that were sent again or
    changed since are left out, and listed. Partners see the reversal as changes; nothing is deleted. The counts are
    shown first. If they have changed by the time you confirm them, nothing is done.
    """
    expected = None if is_confirmed else _confirm(submission_id, data_dir)
    result, others = run(data_dir, lambda context: _reverse(context, submission_id, expected))
    if as_json:
        print_record(_result_record(submission_id, result, others), as_json=True)
        return
    print_line(reversal_summary(result))
    if others:
        print_line()
        print_records(
            _left_out_records(others), columns=("address", "why", "status", "reason"), as_json=False, if_empty=""
        )


def _confirm(submission_id: str, data_dir: str | None) -> Reversal:
    """Show the counts and return them once confirmed; Refused without a terminal, or if the answer is no."""
    counts = run(data_dir, lambda context: count_reversal(context.actor, _stores(context), submission_id))
    return confirm_reversal(counts)


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
    return OptOutStores(
        database=context.database, clock=context.clock, secret_keys=(), history_days=context.history_days
    )


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


def _listed_record(one: ListedSubmission) -> dict[str, Any]:
    return {
        **_target_and_sender(one),
        "sent_by": one.label or one.actor_id,
        "source_ip": one.source_ip,
        **_counts(one),
        "reversed_by": one.reversed_by,
        "import_id": one.import_id,
        "reversed_import_id": one.reversed_import_id,
    }


def _target_and_sender(submission: SubmissionSummary) -> dict[str, Any]:
    return {
        "submission_id": submission.submission_id,
        "org_slug": submission.org_slug,
        "channel": submission.channel,
        "group_id": submission.group_id,
        "group_name": submission.group_name,
        "actor_kind": submission.actor_kind,
        "actor_id": submission.actor_id,
    }


def _counts(submission: SubmissionSummary) -> dict[str, Any]:
    return {
        "received_at": rfc3339(submission.received_ms),
        "received": submission.received,
        "created": submission.created,
        "updated": submission.updated,
        "unchanged": submission.unchanged,
        "outranked": submission.outranked,
        "rejected": submission.rejected,
    }


def _left_out_records(others: list[LeftOut]) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(other) | _digest(other.address) for other in others]


def _digest(address: str) -> dict[str, str | None]:
    """Return the fields of an erased person, in place of the address; empty for others."""
    digest = digest_of(address)
    return {} if digest is None else {"address": None, "address_digest": digest}


def _to_record(details: SubmissionDetails, *, as_json: bool) -> dict[str, Any]:
    reversals = [
        {"submission_id": submission_id, "reversed_at": rfc3339(at_ms)} for submission_id, at_ms in details.reversed
    ]
    return {
        **_target_and_sender(details),
        "request_id": details.request_id,
        "source_ip": details.source_ip,
        **_counts(details),
        "first_seq": details.first_seq,
        "last_seq": details.last_seq,
        "reversed_by": reversals
        if as_json
        else [f"{each['submission_id']} at {each['reversed_at']}" for each in reversals] or None,
        "reverses": details.reverses,
        "import_id": details.import_id,
        "kind": details.kind,
    }
