"""Exports on the pages: the form, the file, and the link of a filtered list. docs/interface.md section D12."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncGenerator

import pytest

from stoplist.web.admin.app import _send_while_wanted
from stoplist.web.admin.page_request import Download
from stoplist.web.body import ClientGone
from stoplist.web.request_context import Message
from tests.deployment import in_own_loop
from tests.web.admin.creation import admin_of, new_person
from tests.web.admin.opt_outs import clock_of, group_id, new_organization
from tests.web.admin.pages import Browser, PageResponse, Pages


def rows(answer: PageResponse) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    assert answer.status == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.html, newline=""), strict=True))


def addresses(answer: PageResponse) -> list[str]:
    return [row["address"] for row in rows(answer)]


def exported(browser: Browser, slug: str, **choices: str) -> PageResponse:
    """Send the form with these choices."""
    form = browser.get(f"/unsubscribes/{slug}/email/export").form(f"/unsubscribes/{slug}/email/export/file")
    return browser.send(form, **choices)


def test_the_form_downloads_the_list(pages: Pages) -> None:
    """The name of the file says what it holds; the audit says who took it."""
    partner = new_organization(pages, "export")
    partner.submit("ann@example.com", {"address": "ben@example.com", "source": "=1+1"})
    partner.submit("cyn@example.com", all_groups=True)
    browser = pages.signed_in("administrator")
    answer = exported(browser, "export")
    assert addresses(answer) == ["ann@example.com", "ben@example.com", "cyn@example.com"]
    assert rows(answer)[1]["source"] == "'=1+1"
    headers = dict(answer.headers)
    assert headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert headers["content-disposition"] == 'attachment; filename="stoplist-export-email-2047-01-15.csv"'
    assert headers["cache-control"] == "no-store"
    shown = browser.get("/audit?action=organization.export&target=export")
    assert "Opt-outs exported" in shown.text
    assert "channel email" in shown.text


def test_the_choices_of_the_form_are_followed(pages: Pages) -> None:
    partner = new_organization(pages)
    partner.submit("ann@example.com")
    partner.submit("ben@example.com", all_groups=True)
    clock_of(pages).advance(1)
    partner.resubscribe("ann@example.com")
    browser, newsletter = pages.signed_in("administrator"), group_id(pages, "Newsletter", partner.slug)
    assert addresses(exported(browser, partner.slug, status="unsubscribed")) == ["ben@example.com"]
    assert addresses(exported(browser, partner.slug, for_group=newsletter)) == ["ben@example.com", "ann@example.com"]
    history = rows(exported(browser, partner.slug, history="yes"))
    assert [(row["seq"], row["actor_label"]) for row in history] == [(seq, "Nightly import") for seq in "123"]
    lines = exported(browser, partner.slug, format="ndjson").html.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [2, 3]


def test_a_filtered_list_links_to_what_it_finds(pages: Pages) -> None:
    """All of it, not the page that is shown; a group alone, as the filter means it."""
    partner = new_organization(pages)
    people = [f"p{number:02}@example.com" for number in range(60)]
    partner.submit(*({"address": person, "reason": "complaint"} for person in people), "ann@example.com")
    partner.submit({"address": "ben@example.com", "reason": "complaint"}, all_groups=True)
    browser, here = pages.signed_in("administrator"), f"/unsubscribes/{partner.slug}/email"
    form = browser.get(here).form(here)
    newsletter = group_id(pages, "Newsletter", partner.slug)
    shown = browser.send(form, reason="complaint", group=newsletter)
    (link,) = [link for link in shown.links if "/export/file" in link]
    assert addresses(browser.get(link)) == people
    assert not [link for link in browser.get(here).links if "/export/file" in link]
    assert not [link for link in browser.send(form, reason="legal").links if "/export/file" in link]
    shown = browser.send(form, **{"from": "2047-01-15", "until": "2047-01-15", "status": "unsubscribed"})
    (link,) = [link for link in shown.links if "/export/file" in link]
    assert len(addresses(browser.get(link))) == 62


def test_only_admins_are_offered_an_export(pages: Pages) -> None:
    """Viewers see the list, and no way to take it away."""
    partner = new_organization(pages)
    partner.submit("ann@example.com")
    here = f"/unsubscribes/{partner.slug}/email"
    viewer = new_person(pages, roles={partner.slug: "viewer"}).browser
    assert not [link for link in viewer.get(f"{here}?status=unsubscribed").links if "export" in link]
    admin = admin_of(pages, partner.slug).browser
    assert f"{here}/export" in admin.get(here).links
    assert addresses(admin.get(f"{here}/export/file")) == ["ann@example.com"]
    for query, status in (("format=xls", 422), ("group=grp_x", 422), ("status=x", 422), ("from=x", 422)):
        assert admin.get(f"{here}/export/file?{query}").status == status
    assert viewer.get(f"{here}/export/file").status == 403
    assert new_person(pages, roles={"bolt": "admin"}).browser.get(f"{here}/export/file").status == 404


@pytest.mark.parametrize("path", ["export", "export/file"])
def test_unknown_channels_have_no_export(pages: Pages, path: str) -> None:
    assert pages.signed_in("administrator").get(f"/unsubscribes/acme/fax/{path}").status == 404


@in_own_loop
async def test_a_file_is_no_longer_read_once_the_browser_has_left() -> None:
    """It may have millions of records, and its reader is closed at once."""
    is_closed, left = False, asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        nonlocal is_closed
        try:
            for _ in range(1_000):
                yield b"a record"
                await asyncio.sleep(0)
        finally:
            is_closed = True

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            left.set()

    with pytest.raises(ClientGone):
        await _send_while_wanted(receive, send, Download("x.csv", "text/csv", endless()))
    assert is_closed
