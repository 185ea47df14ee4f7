"""Reverse a submission: the counts first, then exactly what they say.

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
_AT_ONCE = 50
_COUNTS = ("restored", "corrected", "superseded", "confirmed")


async def form(request: PageRequest) -> HtmlPage:
    """What would be taken back, and what is left out and why."""
    submission = await find_submission(request.actor, request.database, request.path["submission_id"])
    counts = await count_reversal(request.actor, request.admin.opt_outs, submission)
    after_seq, others = after_of(request), []
    if counts.left_out:
        # One more than the page holds tells whether there is another page.
        others = await left_out(
            request.actor, request.admin.opt_outs, submission, after_seq=after_seq, limit=_AT_ONCE + 1
        )
    return HtmlPage(
        "opt_outs/submission_reverse.html",
        {
            "submission": submission,
            "label": await label_of_sender(request, submission),
            "counts": counts,
            "expected": {name: getattr(counts, name) for name in _COUNTS},
            "others": others[:_AT_ONCE],
            "next_after": others[_AT_ONCE - 1].seq if len(others) > _AT_ONCE else None,
            "is_first": not request.query.text("after"),
            "feed": feed_path(submission.org_slug, CHANNELS[submission.channel]),
        },
    )


async def take_back(request: PageRequest) -> Redirect:
    """The records that were shown are what they were before; the page says so."""
    submission_id = request.path["submission_id"]
    expected = Reversal(
        restored=_count(request, "restored"),
        corrected=_count(request, "corrected"),
        superseded=_count(request, "superseded"),
        confirmed=_count(request, "confirmed"),
    )
    done = await reverse(request.actor, request.admin.opt_outs, submission_id, expected=expected)
    note = "submission-reversed" if done.submission_id else "submission-left"
    return Redirect(f"/unsubscribes/{submission_id}/reverse", note=note)


def _count(request: PageRequest, name: str) -> int:
    """A number that the page had shown."""
    text = request.form.text(name)
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Refused("The counts that you were shown are missing: look at them here, and confirm them.")
    return int(text)


ROUTES = (get(_PATH, form), post(_PATH, take_back, again=form))
