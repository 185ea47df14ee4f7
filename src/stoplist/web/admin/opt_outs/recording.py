"""What the two forms that record an act of a person share."""

from typing import get_args

from stoplist.records.manual_entry import MANUAL, Recorded
from stoplist.unsubscribes.model import CONSENT, SentReason, Status
from stoplist.web.admin.opt_outs.paths import channel_of, feed_path
from stoplist.web.admin.page_request import PageRequest, Redirect

OPT_OUT_REASONS = (MANUAL, *(one for one in get_args(SentReason) if one not in (MANUAL, CONSENT)))


def recorded(request: PageRequest, done: Recorded, wanted: Status) -> Redirect:
    """To the record, whose page says what became of it."""
    return Redirect(f"{feed_path(done.org_slug, channel_of(request))}/{done.seq}", note=f"{wanted}-{done.result}")
