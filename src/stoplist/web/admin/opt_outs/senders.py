"""Names the sender of a submission."""

from stoplist.errors import Missing
from stoplist.oauth.credentials import show_credential
from stoplist.records.submissions import SubmissionDetails
from stoplist.web.admin.page_request import PageRequest


async def label_of_sender(request: PageRequest, submission: SubmissionDetails) -> str | None:
    """Return the label of the key that sent it; None for other senders and for keys this person may not see."""
    if submission.actor_kind != "client":
        return None
    try:
        return (await show_credential(request.actor, request.database, client_id=submission.actor_id)).label
    except Missing:
        return None
