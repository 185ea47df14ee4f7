"""The output of `stoplist import`: imports as JSON, their counts, and what to do next."""

from typing import Any

from stoplist_addresses.lists import ListError

from stoplist.cli.printing import rfc3339
from stoplist.lists.imports.model import RUNNING, STOPPED, Import, ImportCounts

# How the options of the reader of lists are called here.
_OPTIONS = {
    "as_of_ms": "--as-of",
    "columns": "--column",
    "encoding": "--encoding",
    "format": "--format",
    "opted_out_when": "--opted-out-when",
    "time_zone": "--time-zone",
}
STANDARD_INPUT_NAME = "standard input"
IMPORT_COLUMNS = ("import_id", "state", "org_slug", "channel", "file_name", "rows", "created", "updated", "bad")


def refusal_text(error: ListError) -> str:
    """Return why a list is refused, and which option would help."""
    option = _OPTIONS.get(error.option or "")
    return str(error) if option is None else f"{error} The option is {option}."


def refusal_of_resumed(error: ListError, import_id: str) -> str:
    """Return why an import cannot go on, and what would help: its options stay those of its beginning."""
    option = _OPTIONS.get(error.option or "")
    if option is None:
        return str(error)
    return f"{error} Give it up with `stoplist import discard {import_id}`, then run it again with {option}."


def import_record(found: Import) -> dict[str, Any]:
    """Return an import as `--json` prints it. Source: docs/interface.md section D12."""
    return {
        "import_id": found.import_id,
        "state": found.state,
        "org_slug": found.org_slug,
        "channel": found.channel,
        "group_id": found.group_id,
        "file_name": found.file_name,
        "sha256": found.sha256,
        **count_record(found.counts),
        "as_of": rfc3339(found.options.as_of_ms),
        "started_at": rfc3339(found.started_ms),
        "ended_at": rfc3339(found.ended_ms),
    }


def count_record(counts: ImportCounts) -> dict[str, int]:
    """Return the counts that the JSON of an import has."""
    return {
        "rows": counts.rows,
        "bad": counts.bad_rows,
        "not_opted_out": counts.not_opted_out,
        "redated": counts.redated,
        "created": counts.created,
        "updated": counts.updated,
        "unchanged": counts.unchanged,
        "outranked": counts.outranked,
    }


def end_lines(ended: Import, *, is_own: bool) -> list[str]:
    """Return the last words of a process that worked on an import.

    `is_own`: no other process has taken the import over.
    """
    import_id = ended.import_id
    if ended.state == RUNNING:
        first = "goes on in another process" if not is_own else "could not be marked as stopped"
    else:
        first = f"is {ended.state}"
    return [f"Import {import_id} {first}.", *count_lines(ended.counts, is_check=False), *_hints(ended, is_own=is_own)]


def _hints(ended: Import, *, is_own: bool) -> list[str]:
    if ended.state not in (RUNNING, STOPPED) or not is_own:
        return []
    taken = f"Rows taken: {ended.row_count:,}."
    discard = f"`stoplist import discard {ended.import_id}`"
    if ended.file_name == STANDARD_INPUT_NAME:
        return [f"{taken} What came through a pipe cannot be resumed: give it up with {discard}, then run it again."]
    when = " in a minute" if ended.state == RUNNING else ""
    return [f"{taken} `stoplist import resume {ended.import_id} FILE` goes on{when}, {discard} gives up the rest."]


def count_lines(counts: ImportCounts, *, is_check: bool, is_exact: bool = True) -> list[str]:
    """Return the counts for people; of a check, what would happen."""
    would = "would be " if is_check else ""
    at_least, at_most = ("", "") if is_exact else ("at least ", "at most ")
    rows = [
        (counts.rows, "rows in all" if is_check else "rows taken", ""),
        *((count, f"left out: {kind.replace('_', ' ')}", "") for kind, count in sorted(counts.bad.items())),
        (counts.not_opted_out, "left out: not opted out", "hide"),
        (counts.erased, "left out: erased persons whom nobody here knows (`stoplist copy` carries them)", "hide"),
        (counts.earlier_versions, "left out: earlier versions of a record", "hide"),
        (counts.repeated or 0, f"{at_most}repeated within the file", "hide"),
        (counts.redated, "dated anew, because their time is missing, unreadable or in the future", "hide"),
        (counts.dated_after_as_of, "dated after --as-of; their own time was kept", "hide"),
        (counts.sources_changed, "with a source that was cut or cleaned", "hide"),
        (counts.reasons_replaced, "with a reason that nobody knows, replaced", "hide"),
        (counts.created, f"{at_least}{would}created: new opt-outs", ""),
        (counts.updated, f"{would}updated: opted out after a resubscription", ""),
        (counts.unchanged, f"{at_most}{would}unchanged: opted out already", ""),
        (counts.outranked, f"{would}outranked: resubscribed later, which stands", ""),
    ]
    return [f"{count:>13,}  {text}" for count, text, when in rows if count or when != "hide"]
