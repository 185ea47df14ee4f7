"""Everything that is stored about the person of an address, now or at a moment: shown, and as a download.

An erased person can ask, too: they state the address. It is posted, so that no URL, log or browser history holds it.
Source: docs/interface.md section D13, Access.
"""

from collections.abc import AsyncGenerator

from stoplist.rfc3339 import parse_ms
from stoplist.rights.access import file_content, show_person
from stoplist.rights.erasure import canonical_address
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.key_use import flush_positions
from stoplist.web.admin.opt_outs.address_erase import address_channel
from stoplist.web.admin.page_request import Download, HtmlPage, PageRequest, get, post
from stoplist.web.admin.times import read_moment

_PATH = "/unsubscribes/person"


async def form(request: PageRequest) -> HtmlPage:
    """Ask for an address."""
    return _page(None)


async def show(request: PageRequest) -> HtmlPage:
    """Show the file of the posted address."""
    return _page((await _content(request)).decode())


async def download(request: PageRequest) -> Download:
    """Return the file; its name does not hold the address."""
    content = await _content(request)

    async def parts() -> AsyncGenerator[bytes, None]:
        yield content

    return Download("stoplist-person.json", "application/json", parts())


async def _content(request: PageRequest) -> bytes:
    channel = address_channel(request)
    address = canonical_address(channel, request.form.text("address"))
    at = read_moment(request.form.text("at"), field="at")
    await flush_positions(request)
    person = await show_person(
        request.actor, request.admin.opt_outs, channel, address, at_ms=None if at is None else parse_ms(at)
    )
    return file_content(person)


def _page(content: str | None) -> HtmlPage:
    return HtmlPage("opt_outs/address_person.html", {"content": content, "channels": CHANNELS})


ROUTES = (get(_PATH, form), post(_PATH, show, on_refusal=form), post(f"{_PATH}/file", download, on_refusal=form))
