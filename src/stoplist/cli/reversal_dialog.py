"""The question before a reversal and the report after it: the same for a submission and an import."""

import sys

import click

from stoplist.cli.printing import counted, is_terminal, print_error
from stoplist.errors import Refused
from stoplist.records.reversal_plan import Reversal


def confirm_reversal(counts: Reversal, *, changes_nothing_else: bool = True) -> Reversal:
    """Show the counts and return them once confirmed; Refused without a terminal, or if the answer is no.

    Nothing is asked if no record would be taken back and the reversal `changes_nothing_else`.
    """
    if not counts.changes and changes_nothing_else:
        return counts
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise Refused(
            f"This would take back {counted(counts.changes, 'record')} and leave out {counts.left_out:,}. "
            "Nothing was changed: without a terminal, confirm with --yes."
        )
    for line in _count_lines(counts):
        print_error(line)
    if not confirmed("Take them back?"):
        raise Refused("Nothing was changed.")
    return counts


def confirmed(question: str) -> bool:
    """Ask a question on stderr; return whether the answer is yes."""
    click.echo(f"{question} [y/N] ", nl=False, err=True)
    # Not click.confirm, which also writes to stdout; stdout is for the result.
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def reversal_summary(result: Reversal, *, noun: str = "submission") -> str:
    """Return a sentence on what was taken back. `noun` is what was reversed."""
    left = (
        f"Left out: {result.left_out:,} (changed since: {result.superseded:,}, sent again since: {result.confirmed:,})."
    )
    if not result.changes:
        earlier = f" Taken back before: {counted(result.taken_back, 'record')}." if result.taken_back else ""
        return f"Nothing was taken back: no record depends on this {noun} alone.{earlier} {left}"
    by = f" by {result.submission_id}" if result.submission_id else ""
    return (
        f"Taken back{by}: {counted(result.changes, 'record')} "
        f"(former state restored: {result.restored:,}, did not exist before: {result.corrected:,}). {left}"
    )


def _count_lines(counts: Reversal) -> list[str]:
    return [
        f"{counts.restored:>9,}  would return to their former state",
        f"{counts.corrected:>9,}  did not exist before: would be withdrawn (reason `correction`: no consent)",
        f"{counts.superseded:>9,}  would be left out: changed since",
        f"{counts.confirmed:>9,}  would be left out: sent again since",
    ]
