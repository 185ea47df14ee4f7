"""The audit page and its CSV export: access, filters, pages, entries. docs/interface.md section D11."""

import csv
import io
import itertools
import re
from typing import Any

import pytest

from stoplist.audit import reading, trail
from stoplist.db import Transaction
from stoplist.oauth.credentials import Changes, create_credential, update_credential
from stoplist.organizations.organizations import rename_organization
from tests.builders import ADMINISTRATOR
from tests.constants import DAY_S
from tests.web.admin.creation import admin_of, new_name, new_person, organization
from tests.web.admin.opt_outs import clock_of
from tests.web.admin.pages import ROLES, Browser, PageResponse, Pages

_AHEAD_DAYS = itertools.count(1_000)
MAY_READ = {"administrator", "admin", "other", "both"}
COLUMNS = [
    *("at", "actor_kind", "actor", "action", "what", "target", "organizations", "details", "source_ip", "request_id")
]


def rows_of(shown: PageResponse) -> list[str]:
    """Return the rows of the table as text."""
    body = shown.html.partition("<tbody")[2].partition("</tbody>")[0]
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in re.split("<tr[^>]*>", body)[1:]]


def filtered(browser: Browser, **filters: str) -> PageResponse:
    """Send the filter form with these values."""
    return browser.submit_form("/audit", **filters)


def exported(browser: Browser, query: str = "") -> list[dict[str, str]]:
    """Return the rows of the export, read by the csv module."""
    answer = browser.request("GET", f"/audit/export{query}")
    assert answer.status == 200, answer.body
    return list(csv.DictReader(io.StringIO(answer.body.decode(), newline=""), strict=True))


def key_of(pages: Pages, slug: str, label: str = "Nightly") -> str:
    """Create a key and return its client_id."""
    made = pages.administer(create_credential, label=label, organizations=[slug])
    client_id: str = made.credential.client_id
    return client_id


def record(pages: Pages, action: str, target: str, *, times: int = 1, **detail: Any) -> None:
    """Record an action `times` times."""

    async def unit(transaction: Transaction) -> None:
        for _ in range(times):
            at_ms = pages.app.clock.now_ms()
            await trail.record(transaction, ADMINISTRATOR, action, target, at_ms=at_ms, **detail)

    pages.app.run(pages.app.database.write(unit))


def ahead_of_others(pages: Pages) -> None:
    """Advance the clock so that later entries are newer than those of other tests."""
    clock_of(pages).advance(next(_AHEAD_DAYS) * DAY_S)


def test_an_entry_shows_actor_action_target_and_details(pages: Pages) -> None:
    """It shows the earlier values; entries are newest first."""
    slug = organization(pages)
    key = key_of(pages, slug)
    clock_of(pages).advance(60)
    pages.administer(update_credential, client_id=key, changes=Changes(label="By day"))
    changed, created = rows_of(filtered(pages.signed_in("administrator"), target=key))
    assert "command line, account tester" in changed
    assert f"from {ADMINISTRATOR.source_ip}" in changed
    assert f"request {ADMINISTRATOR.request_id}" in changed
    assert changed.endswith(f"Key changed {key} label By day (before: Nightly )")
    assert "UTC" in created
    assert f"organizations {slug}" in created
    assert "permissions read, unsubscribe" in created


def test_a_target_links_to_its_page(pages: Pages) -> None:
    ahead_of_others(pages)
    administrator = new_person(pages, is_administrator=True)
    slug = organization(pages, default_group="Newsletter")
    key = key_of(pages, slug)
    admin_of(pages, slug)
    shown = administrator.browser.get("/audit")
    links = {link for link in shown.links if re.match(r"/(settings/(keys|people)|organizations)/.", link)}
    assert {f"/settings/keys/{key}", f"/organizations/{slug}", administrator.page} <= links
    for link in links:
        assert administrator.browser.get(link).status == 200, link


@pytest.mark.parametrize("role", [*ROLES])
def test_only_admins_and_administrators_read_the_audit(pages: Pages, role: str) -> None:
    """Page and file; others do not see a link to it either."""
    browser = pages.signed_in(role)
    expected = 200 if role in MAY_READ else 403
    assert browser.get("/audit").status == expected
    assert browser.get("/audit/export").status == expected
    assert ("/audit" in browser.get("/settings/account").links) == (role in MAY_READ)


def test_an_admin_only_reads_about_their_organizations(pages: Pages) -> None:
    """Page and file agree."""
    ahead_of_others(pages)
    slug, other = organization(pages), organization(pages)
    admin = admin_of(pages, slug)
    record(pages, "database.restored", "database")
    for browser in (admin.browser, new_person(pages, is_administrator=True).browser):
        is_admin = browser is admin.browser
        page = browser.get("/audit")
        file = exported(browser)
        assert slug in page.text
        assert slug in {row["target"] for row in file}
        assert (other in page.text) != is_admin
        assert (other in {row["target"] for row in file}) != is_admin
        assert ("database" in {row["target"] for row in file}) != is_admin
    assert "only see entries about your own organizations" in admin.browser.get("/audit").text
    assert rows_of(filtered(admin.browser, target=other)) == []


def test_entries_are_filtered(pages: Pages) -> None:
    """Person (in any spelling), action, target and days filter alone and combined; both days are included."""
    clock_of(pages).advance(400 * DAY_S)
    slug = organization(pages)
    admin = admin_of(pages, slug)
    assert (
        admin.browser.submit_form("/settings/keys/new", label="Mine", organizations=[slug], permissions=["read"]).status
        == 200
    )
    first_day = "2048-02-19"
    clock_of(pages).advance(2 * DAY_S)
    pages.administer(rename_organization, slug=slug, name="Renamed")
    browser = new_person(pages, is_administrator=True).browser
    spelt = admin.email.upper().replace("PEOPLE.EXAMPLE", "People.Example")
    assert {
        row.count("Key created") for row in rows_of(filtered(browser, person=admin.email, action="key.create"))
    } == {1}
    assert len(rows_of(filtered(browser, person=spelt))) == len(rows_of(filtered(browser, person=admin.email))) > 0
    (renamed,) = rows_of(filtered(browser, target=slug, action="organization.rename"))
    assert "name Renamed" in renamed
    assert "before The firm" in renamed
    on_first = rows_of(filtered(browser, target=slug, **{"from": first_day, "until": first_day}))
    assert len(on_first) == 1
    assert "Organization created" in on_first[0]
    assert len(rows_of(filtered(browser, target=slug, **{"from": "2048-02-20"}))) == 1
    assert len(rows_of(filtered(browser, target=slug, until="2048-02-20"))) == 1
    assert "No entries match the filters" in filtered(browser, target=slug, action="group.create").text


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"from": "yesterday"}, "from"),
        ({"until": "2026-02-30"}, "until"),
        ({"from": "2026-03-02", "until": "2026-03-01"}, "until"),
    ],
)
def test_an_invalid_day_is_refused_and_kept(pages: Pages, filters: dict[str, str], field: str) -> None:
    """The export answers with an error page."""
    browser = pages.signed_in("administrator")
    shown = filtered(browser, target="kept", **filters)
    assert shown.status == 422
    assert f'id="{field}-problem"' in shown.html
    assert dict(shown.form("/audit").values)["target"] == "kept"
    query = "&".join(f"{name}={text}" for name, text in filters.items())
    refused = browser.get(f"/audit/export?{query}")
    assert refused.status == 422
    assert (refused.header("content-type") or "").startswith("text/html")


def test_older_pages_keep_the_filters_and_repeat_nothing(pages: Pages) -> None:
    """Entries recorded meanwhile do not shift the pages."""
    target = new_name()
    for number in range(120):
        record(pages, "group.create", target, number=number)
    browser, path, seen = pages.signed_in("administrator"), f"/audit?target={target}", list[int]()
    while path:
        shown = browser.get(path)
        seen += [int(row.rpartition("number ")[2]) for row in rows_of(shown)]
        record(pages, "group.create", target, number=1000)
        path = next((link for link in shown.links if "before=" in link), "")
        assert not path or f"target={target}" in path
    assert seen == list(range(119, -1, -1))


@pytest.mark.parametrize("before", ["x", "-1", "0", "9" * 40, "²", "1.5", "9223372036854775807"])
def test_an_invalid_page_is_not_found(pages: Pages, before: str) -> None:
    assert pages.signed_in("administrator").get(f"/audit?before={before}").status == 404


def test_a_search_beyond_one_page_finds_older_entries(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that has searched as many entries as it may continues on the next one."""
    monkeypatch.setattr(reading, "MAX_SCANNED", 10)
    slug = organization(pages)
    record(pages, "person.link", new_name(), times=25)
    browser = pages.signed_in("administrator")
    shown = browser.get(f"/audit?person=tester&action=organization.create&target={slug}")
    assert len(rows_of(shown)) == 1, "by its target it is found at once"
    clock_of(pages).advance(1)
    record(pages, "person.link", new_name(), times=25)
    path, looks, found = "/audit?action=organization.create&person=tester", 0, list[str]()
    while path and not any(slug in row for row in found):
        shown = browser.get(path)
        found += rows_of(shown)
        looks += 1
        path = next((link for link in shown.links if "before=" in link), "")
    assert any(slug in row for row in found)


def test_the_page_states_when_it_reached_its_limit(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so even if nothing was found so far."""
    target = new_name()
    record(pages, "group.create", target)
    record(pages, "group.rename", target, times=30)
    monkeypatch.setattr(reading, "MAX_SCANNED", 10)
    browser = pages.signed_in("administrator")
    shown = browser.get(f"/audit?target={target}&action=group.create")
    assert rows_of(shown) == []
    assert "No matches so far" in shown.text
    assert "the limit per page" in shown.text
    looks = 1
    while not rows_of(shown):
        shown = browser.get(next(link for link in shown.links if "before=" in link))
        looks += 1
    assert looks == 4
    assert "Group created" in rows_of(shown)[0]


def test_the_export_holds_all_matching_entries(pages: Pages) -> None:
    """It spans many pages, with a header, newest first, times in UTC."""
    target = new_name()
    record(pages, "group.create", target, times=1_100, name="Same")
    clock_of(pages).advance(1)
    record(pages, "group.rename", target, name="Later", was="Same")
    browser = pages.signed_in("administrator")
    answer = browser.request("GET", f"/audit/export?target={target}")
    assert (answer.header("content-type") or "").startswith("text/csv; charset=utf-8")
    assert re.fullmatch(
        r'attachment; filename="stoplist-audit-\d{4}-\d\d-\d\d\.csv"', answer.header("content-disposition") or ""
    )
    assert answer.body.split(b"\r\n")[0] == ",".join(f'"{name}"' for name in COLUMNS).encode()
    rows = exported(browser, f"?target={target}")
    assert len(rows) == 1_101
    assert list(rows[0]) == COLUMNS
    assert rows[0] == {
        "at": "2047-01-15T08:00:01.000Z",
        "actor_kind": "command",
        "actor": "tester",
        "action": "group.rename",
        "what": "Group renamed",
        "target": target,
        "organizations": "",
        "details": "name: Later; before: Same",
        "source_ip": "192.0.2.9",
        "request_id": "00112233445566778899aabb",
    }
    assert len(exported(browser, f"?target={target}&action=group.rename")) == 1
    assert exported(browser, "?target=none-such") == []
    link = next(link for link in filtered(browser, target=target, action="group.rename").links if "export" in link)
    assert len(exported(browser, link.removeprefix("/audit/export"))) == 1


@pytest.mark.parametrize("name", ["=1+1", '=HYPERLINK("https://evil.example")', "@x", "+1", "-1", " =1", "\t=1"])
def test_formulas_are_text_in_the_export(pages: Pages, name: str) -> None:
    """This holds for the target and for the details."""
    record(pages, "group.create", name, name=name)
    clock_of(pages).advance(1)
    for row in exported(pages.signed_in("administrator"), "?action=group.create"):
        for cell in row.values():
            assert cell.lstrip('\t \r\n"')[:1] not in ("=", "+", "-", "@"), cell


@pytest.mark.parametrize(
    "name", ["a,b", 'say "no"', "two\nlines", "Zoë & 例", "<script>alert(1)</script>", "{{ 7 * 7 }}"]
)
def test_names_are_shown_and_exported_unchanged(pages: Pages, name: str) -> None:
    """Escaped on the page, quoted in the file."""
    target = new_name()
    record(pages, "group.create", target, name=name)
    browser = pages.signed_in("administrator")
    shown = browser.get(f"/audit?target={target}")
    assert " ".join(name.split()) in shown.text
    assert "<script>alert" not in shown.html
    (row,) = exported(browser, f"?target={target}")
    assert row["details"] == f"name: {name}"


def test_filters_are_shown_as_typed(pages: Pages) -> None:
    """The fields show them, escaped."""
    browser = pages.signed_in("administrator")
    shown = filtered(browser, person='"><script>alert(1)</script>')
    assert dict(shown.form("/audit").values)["person"] == '"><script>alert(1)</script>'
    assert "<script>alert" not in shown.html
    assert filtered(browser, target="x" * 5_000).status == 200
    assert filtered(browser, action="none.such").status == 200
