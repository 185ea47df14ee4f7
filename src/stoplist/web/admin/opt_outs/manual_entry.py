"""Record an opt-out manually, for a person who called, wrote or asked in person.

Source: docs/interface.md sections D6 and D11.
"""

from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import show_organization
from stoplist.organizations.target import find_target_of_person
from stoplist.records.manual_entry import record_manually
from stoplist.unsubscribes.model import MAX_SOURCE_CHARS, UNSUBSCRIBED
from stoplist.web.admin.opt_outs.paths import channel_of, feed_path
from stoplist.web.admin.opt_outs.recording import OPT_OUT_REASONS, redirect_to_record
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.admin.times import read_moment

_PATH = "/unsubscribes/{org_slug}/{channel}/add"
_EVERY_GROUP = "all"


async def form(request: PageRequest) -> HtmlPage:
    """Show the form."""
    channel, org_slug = channel_of(request), request.path["org_slug"]
    await find_target_of_person(request.actor, request.database, org_slug=org_slug, group_id=None)
    groups = await list_groups(request.actor, request.database, org_slug=org_slug)
    return HtmlPage(
        "opt_outs/manual_entry.html",
        {
            "organization": await show_organization(request.actor, request.database, org_slug),
            "groups": [group for group in groups if group.retired_ms is None],
            "every_group": _EVERY_GROUP,
            "reasons": OPT_OUT_REASONS,
            "channel": channel.name,
            "words": channel,
            "feed": feed_path(org_slug, channel),
            "most_chars": MAX_SOURCE_CHARS,
        },
    )


async def add(request: PageRequest) -> Redirect:
    """Record the opt-out; the page of the record then states the result."""
    group_id = request.form.text("group_id")
    entry = await record_manually(
        request.actor,
        request.admin.opt_outs,
        channel_of(request),
        org_slug=request.path["org_slug"],
        group_id=group_id if group_id not in ("", _EVERY_GROUP) else None,
        all_groups=group_id == _EVERY_GROUP,
        address=request.form.text("address"),
        status=UNSUBSCRIBED,
        occurred_at=read_moment(request.form.text("occurred_at"), field="occurred_at"),
        reason=request.form.text("reason") or None,
        stated_reason=request.form.text("stated_reason"),
    )
    return redirect_to_record(request, entry, UNSUBSCRIBED)


ROUTES = (get(_PATH, form), post(_PATH, add, on_refusal=form))
