"""The list of submissions and its filters. docs/interface.md section D11."""

import pytest

from tests.constants import DAY_S
from tests.web.admin.creation import new_person
from tests.web.admin.opt_outs import PagesPartner, clock_of, new_organization
from tests.web.admin.pages import PageResponse, Pages

PATH = "/unsubscribes/submissions"


def listed(shown: PageResponse) -> list[str]:
    """Return the ids that the page links to, in order."""
    return [link.rpartition("/")[2] for link in shown.links if link.startswith("/unsubscribes/sub_")]


def test_what_a_key_sent_on_a_day_is_found(pages: Pages) -> None:
    """The page of the key leads to it too."""
    partner = new_organization(pages)
    other = PagesPartner(pages, partner.slug, label="Another program")
    clock_of(pages).jump(-2 * DAY_S)
    partner.submit("ann@example.com")
    clock_of(pages).jump(DAY_S)
    sought = partner.submit("ben@example.com", "cyn@example.com")["submission_id"]
    other.submit("dan@example.com")
    clock_of(pages).jump(DAY_S)
    latest = partner.submit("+442079460018", channel="sms")["submission_id"]
    browser = new_person(pages, roles={partner.slug: "viewer"}).browser
    form = browser.get(PATH).form(PATH)
    key = partner.key.client_id
    shown = browser.send(form, key=key, **{"from": "2047-01-14", "until": "2047-01-14"})
    assert listed(shown) == [sought]
    assert "key Nightly import" in shown.text
    assert shown.form(PATH).values[2:] == [("key", key), ("from", "2047-01-14"), ("until", "2047-01-14")]
    of_key = browser.get(next(link for link in browser.get(f"/settings/keys/{key}").links if PATH in link))
    assert len(listed(of_key)) == 3
    assert listed(of_key)[:2] == [latest, sought]
    assert listed(browser.send(form, channel="sms")) == [latest]
    assert len(listed(browser.send(form, organization=partner.slug))) == 4
    assert "No submissions match the filters" in browser.send(form, channel="phone").text


def test_older_pages_repeat_no_submission(pages: Pages) -> None:
    """Many may have been received in the same millisecond."""
    partner = new_organization(pages)
    made = {partner.submit(f"p{number}@example.com")["submission_id"] for number in range(55)}
    browser, path, seen = pages.signed_in("administrator"), f"{PATH}?organization={partner.slug}", []
    while path:
        shown = browser.get(path)
        seen += listed(shown)
        path = next((link for link in shown.links if "before=" in link), "")
    assert len(seen) == 55
    assert set(seen) == made
    assert "Back to newest" in shown.text


def test_people_see_submissions_of_their_organizations_alone(pages: Pages) -> None:
    partner = new_organization(pages)
    partner.submit("ann@example.com")
    outsider = new_person(pages, roles={"bolt": "admin"}).browser
    assert listed(outsider.get(f"{PATH}?key={partner.key.client_id}")) == []
    assert outsider.get(f"{PATH}?organization={partner.slug}").status == 404
    nobody = new_person(pages).browser
    assert "No submissions yet" in nobody.get(PATH).text


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("key=%27", 422, "key"),
        ("channel=fax", 422, "channel"),
        ("from=2047-02-30", 422, "from"),
        ("from=2047-01-16&until=2047-01-15", 422, "until"),
        ("before=1", 404, ""),
        ("before=9999999999999999999-sub_0000000000000000000000", 404, ""),
    ],
)
def test_an_invalid_filter_is_refused(pages: Pages, query: str, status: int, field: str) -> None:
    shown = pages.signed_in("administrator").get(f"{PATH}?{query}")
    assert shown.status == status
    assert not field or f'id="{field}-problem"' in shown.html
