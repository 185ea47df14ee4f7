"""Reverse a submission. The page shows the counts first, and the reversal does exactly what they state.

Source: docs/interface.md section D11, Reversing.
"""

from stoplist.errors import Refused
from stoplist.records.reversal import count_reversal, left_out, reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.records.submissions import find_submission
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.opt_outs.paths import after_of, feed_path
from stoplist.web.admin.opt_outs.senders import label_of_sender
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/unsubscribes/{submission_id}/reverse"
_PAGE_SIZE = 50
_COUNTS = ("restored", "corrected", "superseded", "confirmed")


async def form(request: PageRequest) -> HtmlPage:
    """Show what would be reversed, and what is left out and why."""
    submission = await find_submission(request.actor, request.database, request.path["submission_id"])
    counts = await count_reversal(request.actor, request.admin.opt_outs, submission)
    after_seq, others = after_of(request), []
    if counts.left_out:
        # Fetch one more than the page holds, to know whether there is another page.
        others = await left_out(
            request.actor, request.admin.opt_outs, submission, after_seq=after_seq, limit=_PAGE_SIZE + 1
        )
    return HtmlPage(
        "opt_outs/submission_reverse.html",
        {
            "submission": submission,
            "label": await label_of_sender(request, submission),
            "counts": counts,
            "expected": {name: getattr(counts, name) for name in _COUNTS},
            "others": others[:_PAGE_SIZE],
            "next_after": others[_PAGE_SIZE - 1].seq if len(others) > _PAGE_SIZE else None,
            "is_first": not request.query.text("after"),
            "feed": feed_path(submission.org_slug, CHANNELS[submission.channel]),
        },
    )


async def reverse_submission(request: PageRequest) -> Redirect:
    """Reverse the submission if the counts that were shown still hold."""
    submission_id = request.path["submission_id"]
    expected = Reversal(
        restored=_count(request, "restored"),
        corrected=_count(request, "corrected"),
        superseded=_count(request, "superseded"),
        confirmed=_count(request, "confirmed"),
    )
    reversal = await reverse(request.actor, request.admin.opt_outs, submission_id, expected=expected)
    note = "submission-reversed" if reversal.submission_id else "submission-left"
    return Redirect(f"/unsubscribes/{submission_id}/reverse", note=note)


def _count(request: PageRequest, name: str) -> int:
    """Return a count that the page had shown. Raises Refused."""
    text = request.form.text(name)
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Refused("The counts to confirm are missing. Check the counts below and confirm again.")
    return int(text)


ROUTES = (get(_PATH, form), post(_PATH, reverse_submission, on_refusal=form))
