"""The states of imports in words, and a status with what its page needs."""

from typing import Final, NamedTuple

from stoplist.lists.uploads.status import ImportStatus, find_status
from stoplist.web.admin.page_request import PageRequest


class StateWords(NamedTuple):
    """A state for a pill, of a kind of parts.html."""

    kind: str
    text: str


STATES: Final = {
    "uploading": StateWords("plain", "Uploading"),
    "uploaded": StateWords("warn", "Not checked"),
    "checking": StateWords("plain", "Checking"),
    "checked": StateWords("warn", "Checked"),
    "running": StateWords("plain", "Running"),
    "stopped": StateWords("warn", "Stopped"),
    "done": StateWords("good", "Done"),
    "reversing": StateWords("warn", "Reversing"),
    "reversed": StateWords("plain", "Reversed"),
    "discarded": StateWords("plain", "Discarded"),
}


async def status_of(request: PageRequest) -> ImportStatus:
    """Return the import in the path. Raises Missing and Forbidden."""
    return await find_status(request.actor, request.database, request.path["import_id"])
