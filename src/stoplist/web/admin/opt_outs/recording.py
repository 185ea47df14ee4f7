"""Shared by the two forms for manual changes."""

from typing import get_args

from stoplist.records.manual_entry import MANUAL, ManualEntry
from stoplist.unsubscribes.model import CONSENT, SentReason, Status
from stoplist.web.admin.opt_outs.paths import channel_of, feed_path
from stoplist.web.admin.page_request import PageRequest, Redirect

OPT_OUT_REASONS = (MANUAL, *(one for one in get_args(SentReason) if one not in (MANUAL, CONSENT)))


def redirect_to_record(request: PageRequest, entry: ManualEntry, requested: Status) -> Redirect:
    """Return a redirect to the record, with a note that states the result."""
    return Redirect(f"{feed_path(entry.org_slug, channel_of(request))}/{entry.seq}", note=f"{requested}-{entry.result}")
