"""A submission: sender, time and source, the records it changed, and whether it was reversed.

Source: docs/interface.md sections D6 and D11.
"""

from stoplist.organizations.organizations import show_organization
from stoplist.records.reversal import is_recent
from stoplist.records.submissions import find_submission, records_of_submission
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.opt_outs.paths import after_of, feed_path
from stoplist.web.admin.opt_outs.senders import label_of_sender
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get

_PAGE_SIZE = 50


async def show(request: PageRequest) -> HtmlPage:
    """Show the submission and a page of the changes it made."""
    submission = await find_submission(request.actor, request.database, request.path["submission_id"])
    # Fetch one more than the page holds, to know whether there is another page.
    records = await records_of_submission(
        request.actor, request.database, submission, after_seq=after_of(request), limit=_PAGE_SIZE + 1
    )
    return HtmlPage(
        "opt_outs/submission.html",
        {
            "submission": submission,
            "is_recent": is_recent(request.admin.opt_outs, submission.received_ms),
            "history_days": request.admin.history_days,
            "organization": await show_organization(request.actor, request.database, submission.org_slug),
            "label": await label_of_sender(request, submission),
            "records": records[:_PAGE_SIZE],
            "next_after": records[_PAGE_SIZE - 1].seq if len(records) > _PAGE_SIZE else None,
            "is_first": not request.query.text("after"),
            "words": CHANNELS[submission.channel],
            "feed": feed_path(submission.org_slug, CHANNELS[submission.channel]),
        },
    )


ROUTES = (get("/unsubscribes/{submission_id}", show),)
