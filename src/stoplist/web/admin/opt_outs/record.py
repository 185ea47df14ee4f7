"""A record: what it blocks, and its whole history. Printed, the page is evidence of an opt-out.

Source: docs/interface.md sections D5 and D11.
"""

from stoplist.organizations.groups import list_groups
from stoplist.proof.propagation import Since, since_when
from stoplist.records.history import RecordDetails, show_record
from stoplist.rights.reads import note_read
from stoplist.unsubscribes.channel import Channel
from stoplist.web.admin.key_use import flush_positions
from stoplist.web.admin.opt_outs.paths import change_of, channel_of, feed_path
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show the current state of the record that a change created or updated."""
    channel, org_slug = channel_of(request), request.path["org_slug"]
    record = await show_record(
        request.actor, request.database, org_slug=org_slug, channel=channel, seq=change_of(request)
    )
    read = record.address or record.address_digest or ""
    await note_read(request.actor, request.admin.opt_outs, read, organizations=(record.org_slug,))
    return HtmlPage(
        "opt_outs/record.html",
        {
            "record": record,
            "history_days": request.admin.history_days,
            "words": channel,
            "here": f"{feed_path(org_slug, channel)}/{record.seq}",
            "feed": feed_path(org_slug, channel),
            "now_ms": request.clock.now_ms(),
            "may_erase": record.address is not None and request.actor.administers([record.org_slug]),
            "may_change": await _may_change(request, record),
            "readers": await _readers(request, record, channel),
        },
    )


async def _readers(request: PageRequest, record: RecordDetails, channel: Channel) -> list[Since]:
    """Return since when each key has the present state of the record."""
    await flush_positions(request)
    return await since_when(
        request.actor,
        request.admin.opt_outs,
        org_slug=record.org_slug,
        channel=channel,
        group_id=record.group_id,
        seq=record.seq,
    )


async def _may_change(request: PageRequest, record: RecordDetails) -> bool:
    """Return whether this person may change the record. Closed organizations and retired groups are fixed."""
    if record.is_closed or record.address is None or not request.actor.administers([record.org_slug]):
        return False
    if record.group_id is None:
        return True
    groups = await list_groups(request.actor, request.database, org_slug=record.org_slug)
    return any(group.group_id == record.group_id and group.retired_ms is None for group in groups)


ROUTES = (get("/unsubscribes/{org_slug}/{channel}/{seq}", show),)
