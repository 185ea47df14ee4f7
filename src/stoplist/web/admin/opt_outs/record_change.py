"""Record an opt-out or a resubscription manually from a record, without typing the address again.

Source: docs/interface.md sections D6 and D11.
"""

from typing import NamedTuple

from stoplist.errors import Missing
from stoplist.organizations.target import find_target_of_person
from stoplist.records.history import RecordDetails, show_record
from stoplist.records.manual_entry import record_manually
from stoplist.unsubscribes.model import MAX_SOURCE_CHARS, RESUBSCRIBED, UNSUBSCRIBED, Status
from stoplist.web.admin.opt_outs.paths import change_of, channel_of, feed_path
from stoplist.web.admin.opt_outs.recording import OPT_OUT_REASONS, redirect_to_record
from stoplist.web.admin.page_request import Handler, HtmlPage, PageRequest, PageRoute, Redirect, get, post
from stoplist.web.admin.times import read_moment


class _Change(NamedTuple):
    """The words of the page, and the status that results."""

    name: str
    title: str
    status: Status
    button: str


_CHANGES = (
    _Change("unsubscribe", "Opt out manually", UNSUBSCRIBED, "Record opt-out"),
    _Change("resubscribe", "Resubscribe manually", RESUBSCRIBED, "Resubscribe"),
)


def _form(change: _Change) -> Handler:
    async def form(request: PageRequest) -> HtmlPage:
        record = await _record(request)
        await find_target_of_person(request.actor, request.database, org_slug=record.org_slug, group_id=record.group_id)
        channel = channel_of(request)
        return HtmlPage(
            "opt_outs/record_change.html",
            {
                "record": record,
                "change": change,
                "reasons": OPT_OUT_REASONS,
                "words": channel,
                "here": f"{feed_path(record.org_slug, channel)}/{record.seq}",
                "feed": feed_path(record.org_slug, channel),
                "most_chars": MAX_SOURCE_CHARS,
            },
        )

    return form


def _handler(change: _Change) -> Handler:
    async def record_change(request: PageRequest) -> Redirect:
        record = await _record(request)
        entry = await record_manually(
            request.actor,
            request.admin.opt_outs,
            channel_of(request),
            org_slug=record.org_slug,
            group_id=record.group_id,
            all_groups=record.group_id is None,
            address=record.address or "",
            status=change.status,
            occurred_at=read_moment(request.form.text("occurred_at"), field="occurred_at"),
            reason=request.form.text("reason") or None,
            stated_reason=request.form.text("stated_reason"),
        )
        return redirect_to_record(request, entry, change.status)

    return record_change


async def _record(request: PageRequest) -> RecordDetails:
    record = await show_record(
        request.actor,
        request.database,
        org_slug=request.path["org_slug"],
        channel=channel_of(request),
        seq=change_of(request),
    )
    if record.address is None:
        raise Missing("This person was erased. Add an opt-out or a resubscription with the address that they state.")
    return record


def _routes(change: _Change) -> tuple[PageRoute, PageRoute]:
    path, form = f"/unsubscribes/{{org_slug}}/{{channel}}/{{seq}}/{change.name}", _form(change)
    return get(path, form), post(path, _handler(change), on_refusal=form)


ROUTES = tuple(route for change in _CHANGES for route in _routes(change))
