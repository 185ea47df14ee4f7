"""Everything that is stored about the person of a record, now or at a moment: shown, and as a download.

Source: docs/interface.md section D13, Access.
"""

from collections.abc import AsyncGenerator

from stoplist.errors import Missing
from stoplist.records.history import show_record
from stoplist.rfc3339 import parse_ms
from stoplist.rights.access import file_content, show_person
from stoplist.web.admin.key_use import flush_positions
from stoplist.web.admin.opt_outs.paths import change_of, channel_of, feed_path
from stoplist.web.admin.page_request import Download, HtmlPage, PageRequest, get
from stoplist.web.admin.times import read_moment

_PATH = "/unsubscribes/{org_slug}/{channel}/{seq}/person"


async def show(request: PageRequest) -> HtmlPage:
    """Show the file."""
    channel, org_slug = channel_of(request), request.path["org_slug"]
    return HtmlPage(
        "opt_outs/record_person.html",
        {
            "content": (await _content(request)).decode(),
            "org_slug": org_slug,
            "words": channel,
            "at": request.query.text("at"),
            "here": f"{feed_path(org_slug, channel)}/{change_of(request)}",
            "feed": feed_path(org_slug, channel),
        },
    )


async def download(request: PageRequest) -> Download:
    """Return the file; its name does not hold the address."""
    content = await _content(request)

    async def parts() -> AsyncGenerator[bytes, None]:
        yield content

    return Download(f"stoplist-person-{change_of(request)}.json", "application/json", parts())


async def _content(request: PageRequest) -> bytes:
    channel, org_slug = channel_of(request), request.path["org_slug"]
    record = await show_record(
        request.actor, request.database, org_slug=org_slug, channel=channel, seq=change_of(request)
    )
    if record.address is None:
        raise Missing("This person was erased. State their address under Unsubscribes, Data of a person.")
    at = read_moment(request.query.text("at"), field="at")
    await flush_positions(request)
    person = await show_person(
        request.actor,
        request.admin.opt_outs,
        channel,
        record.address,
        at_ms=None if at is None else parse_ms(at),
    )
    return file_content(person)


ROUTES = (get(_PATH, show), get(f"{_PATH}/file", download))
