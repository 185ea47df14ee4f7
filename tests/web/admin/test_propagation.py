"""The pages on propagation, the panel of a record and of the overview (docs/interface.md section D14, Propagation)."""

from stoplist.proof.propagation import HOUR_MS
from tests.builders import execute
from tests.web.admin.opt_outs import PagesPartner, clock_of, new_organization, record_of
from tests.web.admin.pages import Pages

PATH = "/unsubscribes/propagation"
_AGED = """
UPDATE unsubscribes SET recorded_ms = recorded_ms - :age_ms
WHERE feed_id = (SELECT 16 * organization_id + 1 FROM organizations WHERE slug = :slug)
"""


def follow(partner: PagesPartner, **query: str) -> str:
    """Follow the feed as the partner's program; return the cursor of the page."""
    text = "&".join(f"{name}={value}" for name, value in query.items())
    answer = partner.pages.app.request(
        "GET",
        f"/api/v1/unsubscribe/email?{text}",
        headers=[("authorization", f"Bearer {partner.pages.app.pair(partner.key)['access_token']}")],
    )
    return str(answer.json()["next_cursor"])


def behind(pages: Pages, label: str) -> PagesPartner:
    """Return a partner that has lacked a change for longer than the limit."""
    partner = new_organization(pages)
    partner = PagesPartner(pages, partner.slug, label=label)
    partner.submit("ann@example.com")
    follow(partner, cursor=follow(partner))
    partner.submit("bob@example.com")
    # A session would not last for so long.
    pages.app.run(execute(pages.app.database, _AGED, slug=partner.slug, age_ms=48 * HOUR_MS + 1))
    return partner


def test_a_key_behind_is_named_on_its_page_and_the_overview(pages: Pages) -> None:
    """Notes of this process are written first; an organization without such keys has no panel."""
    partner = behind(pages, "Shop <b>sender</b>")
    browser = pages.signed_in("administrator")
    shown = browser.get(f"{PATH}?organization={partner.slug}")
    assert "Shop <b>sender</b>" in shown.text
    assert "Behind" in shown.text
    assert "Never followed" in shown.text
    assert "<b>sender" not in shown.html
    assert "Keys that are behind" in browser.get(f"/?organization={partner.slug}").text
    follow(partner, cursor=follow(partner))
    shown = browser.get(f"{PATH}?organization={partner.slug}")
    assert "Behind" not in shown.text
    assert "Keys that are behind" not in browser.get(f"/?organization={partner.slug}").text


def test_a_mark_is_set_after_its_consequences_were_shown(pages: Pages) -> None:
    """A stopped key alarms nobody."""
    partner = behind(pages, "Old shop")
    path = f"{PATH}/{partner.slug}/email/{partner.key.client_id}"
    browser = pages.signed_in("administrator")
    assert path in browser.get(f"{PATH}?organization={partner.slug}").links
    page = browser.get(path)
    assert "people who opted out since are written to" in page.text
    answer = browser.send(page.form(path), mark="stopped")
    assert "The mark was saved." in browser.follow(answer).text
    assert "Keys that are behind" not in browser.get(f"/?organization={partner.slug}").text
    assert browser.submit_form(path, mark="none").status == 303
    assert "Keys that are behind" in browser.get(f"/?organization={partner.slug}").text
    refused = browser.submit_form(path, mark="both")
    assert (refused.status, "Choose one of the three." in refused.text) == (422, True)
    assert browser.get(f"{PATH}/{partner.slug}/email/nobody").status == 404
    assert browser.get(f"{path}?group=grp_0000000000000000000000").status == 404


def test_a_record_says_since_when_each_key_has_it(pages: Pages) -> None:
    """Times are to the second, for a reader of the print; keys that are not known to have it come first."""
    partner = PagesPartner(pages, label="Mail program")
    PagesPartner(pages, label="Idle program")
    partner.submit("evidence@example.com")
    clock_of(pages).advance(90)
    cursor = follow(partner)
    browser = pages.signed_in("viewer")
    path = record_of(browser, "evidence@example.com")
    readers = browser.get(path).text.partition("Keys that have this change")[2].partition("History")[0]
    assert "2047-01-15 08:01:30" not in readers
    follow(partner, cursor=cursor)
    readers = browser.get(path).text.partition("Keys that have this change")[2].partition("History")[0]
    assert "2047-01-15 08:01:30" in readers
    assert partner.key.client_id in readers
    assert readers.index("Idle program Not known to have it") < readers.index("Mail program 2047-01-15 08:01:30")
