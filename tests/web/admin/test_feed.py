"""The newest changes of an organization and channel, and their filters. docs/interface.md sections D5, D6 and D11."""

import re

import pytest

from stoplist.organizations.groups import create_group, list_groups, retire_group
from tests.builders import ADMINISTRATOR
from tests.constants import DAY_S
from tests.records.scan_limit import limit_scans
from tests.web.admin.opt_outs import clock_of, group_id, new_organization
from tests.web.admin.pages import Browser, PageResponse, Pages


def listed(shown: PageResponse, slug: str, channel: str = "email") -> list[str]:
    """Return the numbers of the changes that the page links to."""
    begin = f"/unsubscribes/{slug}/{channel}/"
    found = [link.removeprefix(begin) for link in shown.links if link.startswith(begin)]
    return [one for one in found if one.isdigit()]


def filtered(browser: Browser, slug: str, **filters: str) -> PageResponse:
    """Send the filter form with these values."""
    path = f"/unsubscribes/{slug}/email"
    return browser.submit_form(path, **filters)


def test_records_are_listed_once_newest_change_first(pages: Pages) -> None:
    """Each row links to its record."""
    partner = new_organization(pages, "order")
    partner.submit("first@example.com", "second@example.com")
    partner.submit("third@example.com", all_groups=True)
    clock_of(pages).advance(1)
    partner.resubscribe("first@example.com")
    browser = pages.signed_in("administrator")
    shown = browser.get("/unsubscribes/order/email")
    assert listed(shown, "order") == ["4", "3", "2"]
    assert "All groups" in shown.text
    assert "Consent" in shown.text
    assert browser.get("/unsubscribes/order/email/1").title == browser.get("/unsubscribes/order/email/4").title


def test_older_pages_repeat_no_record(pages: Pages) -> None:
    """Pages continue by the number of a change, never by an address."""
    partner = new_organization(pages, "pager")
    partner.submit(*(f"person{number}@example.com" for number in range(120)))
    browser, seen, path = pages.signed_in("administrator"), [], "/unsubscribes/pager/email"
    while path:
        shown = browser.get(path)
        seen += listed(shown, "pager")
        path = next((link for link in shown.links if "before=" in link), "")
    assert seen == [str(number) for number in range(120, 0, -1)]
    assert "Back to newest" in shown.text


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"group": "all"}, ["5"]),
        ({"group": "Reminders"}, ["4"]),
        ({"status": "resubscribed"}, ["3"]),
        ({"reason": "complaint"}, ["2"]),
        ({"status": "unsubscribed", "group": "Newsletter"}, ["2", "1"]),
        ({"from": "2047-01-14"}, ["5", "4", "3"]),
        ({"until": "2047-01-13"}, ["2", "1"]),
        ({"from": "2047-01-14", "until": "2047-01-14"}, ["3"]),
        ({"reason": "legal"}, []),
    ],
)
def test_records_are_filtered(pages: Pages, filters: dict[str, str], expected: list[str]) -> None:
    """Group, status, reason and days filter, the last day included; the form keeps the filters."""
    partner = new_organization(pages)
    slug = partner.slug
    reminders = pages.administer(create_group, org_slug=slug, name="Reminders").group_id
    clock_of(pages).jump(-2 * DAY_S)
    partner.submit("one@example.com", {"address": "two@example.com", "reason": "complaint"})
    clock_of(pages).jump(DAY_S)
    partner.resubscribe("three@example.com")
    clock_of(pages).jump(DAY_S)
    partner.submit("four@example.com", group_id=reminders)
    partner.submit("five@example.com", all_groups=True)
    if filters.get("group") in ("Reminders", "Newsletter"):
        filters = filters | {"group": group_id(pages, filters["group"], slug)}
    shown = filtered(pages.signed_in("administrator"), slug, **filters)
    assert listed(shown, slug) == expected
    assert filters.items() <= dict(shown.form(f"/unsubscribes/{slug}/email").values).items()
    if not expected:
        assert "No records match the filters" in shown.text


def test_older_pages_keep_the_filters(pages: Pages) -> None:
    partner = new_organization(pages, "carry")
    for number in range(55):
        reason = "bounce" if number else "legal"
        partner.submit({"address": f"person{number}@example.com", "reason": reason})
    browser = pages.signed_in("administrator")
    first = filtered(browser, "carry", reason="bounce")
    (older,) = [link for link in first.links if "before=" in link]
    assert listed(browser.get(older), "carry") == ["5", "4", "3", "2"]


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"from": "yesterday"}, "from"),
        ({"until": "2047-02-30"}, "until"),
        ({"from": "2047-01-16", "until": "2047-01-15"}, "until"),
        ({"group": "grp_none"}, "group"),
        ({"status": "gone"}, "status"),
        ({"reason": "<script>"}, "reason"),
    ],
)
def test_an_invalid_filter_is_refused(pages: Pages, filters: dict[str, str], field: str) -> None:
    shown = filtered(pages.signed_in("viewer"), "acme", **filters)
    assert shown.status == 422
    assert f'id="{field}-problem"' in shown.html
    assert "<script>" not in shown.html
    assert listed(shown, "acme") == []


def test_a_page_states_how_many_records_it_searched(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that reached its limit says so, and the next one continues there."""
    limit_scans(monkeypatch, 2, rows=10)
    partner = new_organization(pages, "rare")
    partner.submit({"address": "rare@example.com", "reason": "legal"})
    partner.submit(*(f"person{number}@example.com" for number in range(30)))
    browser = pages.signed_in("administrator")
    first = filtered(browser, "rare", reason="legal")
    assert "Searched 20 records in one second" in first.text
    assert re.search(r"recorded from [-0-9]{10}.[0-9:]{5}.UTC to [-0-9]{10}.[0-9:]{5}.UTC", first.text)
    assert "No matches so far" in first.text
    (older,) = [link for link in first.links if "before=" in link]
    assert listed(browser.get(older), "rare") == ["1"]


def test_an_empty_feed_explains_how_to_add_opt_outs(pages: Pages) -> None:
    """People who may add one get a link."""
    new_organization(pages, "blank")
    path = "/unsubscribes/blank/phone"
    shown = pages.signed_in("administrator").get(path)
    assert "No opt-outs yet" in shown.text
    assert f"{path}/add" in shown.links
    assert "/unsubscribes/acme/phone/add" not in pages.signed_in("viewer").get("/unsubscribes/acme/phone").links


@pytest.mark.parametrize(
    "target", ["/unsubscribes/bolt/email", "/unsubscribes/none/email", "/unsubscribes/acme/letter"]
)
def test_an_invisible_feed_is_not_found(pages: Pages, target: str) -> None:
    """The answer is the same as for one that does not exist."""
    assert pages.signed_in("viewer").get(target).status == 404


@pytest.mark.parametrize("before", ["x", "-1", "1.5", "9" * 40, "\u0661"])
def test_an_invalid_page_is_not_found(pages: Pages, before: str) -> None:
    assert pages.signed_in("viewer").get(f"/unsubscribes/acme/email?before={before}").status in (400, 404)


def test_names_are_escaped(pages: Pages) -> None:
    """A retired group can still be filtered by."""
    new_organization(pages, "markup", "<b>Bold</b> & co")
    group = pages.administer(create_group, org_slug="markup", name="<script>alert(1)</script>")
    pages.administer(retire_group, group_id=group.group_id)
    assert len(pages.app.run(list_groups(ADMINISTRATOR, pages.app.database, org_slug="markup"))) == 2
    shown = pages.signed_in("administrator").get("/unsubscribes/markup/email")
    assert "<b>" not in shown.html
    assert "<script>alert" not in shown.html
    assert "<script>alert(1)</script> (retired)" in shown.text
