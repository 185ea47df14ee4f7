"""Manual entry of opt-outs. docs/interface.md sections D6 and D11."""

import pytest

from stoplist.organizations.groups import create_group, unset_default_group
from stoplist.organizations.organizations import close_organization
from tests.builders import audit_rows
from tests.web.admin.opt_outs import PagesPartner, clock_of, group_id, new_organization, record_of
from tests.web.admin.pages import Pages

PATH = "/unsubscribes/acme/email/add"
STATED_REASON = "Asked at the front desk"


def test_an_admin_records_an_opt_out(pages: Pages) -> None:
    """Any spelling is good; it is for the default group unless another is chosen, as of now, with the reason given."""
    browser = pages.signed_in("admin")
    answer = browser.submit_form(PATH, address=" Front.Desk@Example.COM ", stated_reason=STATED_REASON)
    assert answer.status == 303
    assert answer.location is not None
    assert "admin" not in answer.location.lower()
    shown = browser.follow(answer)
    assert "The opt-out was recorded." in shown.text
    for text in (
        "front.desk@example.com",
        "may not send Newsletter messages",
        STATED_REASON,
        "Manual",
        "admin@people.example",
    ):
        assert text in shown.text
    assert "Occurred2047-01-15 08:00:00 UTC" in shown.text
    row = [row for row in pages.app.run(audit_rows(pages.app.database)) if row.action != "person.read"][-1]
    assert (row.action, row.actor) == ("unsubscribe.by_hand", "person admin@people.example")


def test_an_opt_out_covers_the_chosen_group_or_all(pages: Pages) -> None:
    """Never silently more than was chosen."""
    browser = pages.signed_in("admin")
    form = browser.get(PATH).form(PATH)
    reminders = browser.send(
        form, address="a.group@example.com", group_id=group_id(pages, "Reminders"), stated_reason=STATED_REASON
    )
    assert "may not send Reminders messages" in browser.follow(reminders).text
    every = browser.send(form, address="all.groups@example.com", group_id="all", stated_reason=STATED_REASON)
    assert "may not send any messages by e-mail" in browser.follow(every).text


def test_a_time_and_a_reason_can_be_stated(pages: Pages) -> None:
    """The time is UTC, to the second."""
    browser = pages.signed_in("admin")
    form = browser.get(PATH).form(PATH)
    changes = {"occurred_at": "2047-01-12T10:11:12", "reason": "legal", "stated_reason": STATED_REASON}
    shown = browser.follow(browser.send(form, address="dated@example.com", **changes))
    assert "Occurred2047-01-12 10:11:12 UTC" in shown.text
    assert "Legal" in shown.text


def test_an_opt_out_without_effect_is_explained(pages: Pages) -> None:
    """Unchanged if sent twice; outranked if older than a resubscription, whose time is shown."""
    browser, partner = pages.signed_in("admin"), PagesPartner(pages)
    form = browser.get(PATH).form(PATH)
    for expected in ("The opt-out was recorded.", "this address had already opted out"):
        assert (
            expected
            in browser.follow(browser.send(form, address="twice@example.com", stated_reason=STATED_REASON)).text
        )
    clock_of(pages).advance(60)
    partner.resubscribe("twice@example.com")
    late = browser.send(form, address="twice@example.com", occurred_at="2047-01-14T00:00", stated_reason=STATED_REASON)
    shown = browser.follow(late)
    assert "Nothing changed: this person resubscribed after the time you entered" in shown.text
    assert "Last known act2047-01-15 08:01:00 UTC" in shown.text
    again = browser.send(form, address="twice@example.com", stated_reason=STATED_REASON)
    assert "replaces the resubscription" in browser.follow(again).text


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"address": "no address"}, "address"),
        ({"address": "<script>@x.example"}, "address"),
        ({"group_id": "grp_" + "0" * 22}, "group_id"),
        ({"group_id": "' OR 1"}, "group_id"),
        ({"reason": "because"}, "reason"),
        ({"reason": "consent"}, "reason"),
        ({"occurred_at": "2047-01-15"}, "occurred_at"),
        ({"occurred_at": "2047-01-15T08:06"}, "occurred_at"),
        ({"occurred_at": "0000-01-15T08:06"}, "occurred_at"),
        ({"stated_reason": ""}, "stated_reason"),
        ({"stated_reason": "x" * 201}, "stated_reason"),
    ],
)
def test_an_invalid_value_is_refused_and_kept(pages: Pages, typed: dict[str, str], field: str) -> None:
    """Nothing is recorded."""
    before = pages.app.value("SELECT COUNT(*) AS number FROM submissions")
    browser = pages.signed_in("admin")
    filled = {"address": "wrong@example.com", "stated_reason": STATED_REASON} | typed
    shown = browser.submit_form(PATH, **filled)
    assert shown.status == 422
    assert f'id="{field}-problem"' in shown.html
    assert "<script>" not in shown.html
    kept = dict(shown.form(PATH).values)
    assert kept["address"] == filled["address"]
    assert kept["stated_reason"] == filled["stated_reason"]
    assert pages.app.value("SELECT COUNT(*) AS number FROM submissions") == before


def test_without_a_default_group_one_must_be_chosen(pages: Pages) -> None:
    """Never silently all groups."""
    new_organization(pages, "no-default")
    pages.administer(create_group, org_slug="no-default", name="Offers")
    pages.administer(unset_default_group, org_slug="no-default")
    browser, path = pages.signed_in("administrator"), "/unsubscribes/no-default/sms/add"
    page = browser.get(path)
    assert "Phone number" in page.text
    shown = browser.send(page.form(path), address="+442079460958", stated_reason=STATED_REASON)
    assert shown.status == 422
    assert 'id="group_id-problem"' in shown.html


def test_only_admins_of_open_organizations_add_opt_outs(pages: Pages) -> None:
    """403 for viewers, 404 for outsiders, 422 for a closed organization."""
    typed = {"address": "only.admins@example.com", "group_id": "all", "stated_reason": STATED_REASON}
    for name, status in (("viewer", 403), ("other", 404), ("nobody", 404)):
        assert pages.signed_in(name).get(PATH).status == status
        assert pages.signed_in(name).post(PATH, typed).status == status
    new_organization(pages, "closing").submit("kept.closed@example.com")
    pages.administer(close_organization, slug="closing")
    browser = pages.signed_in("administrator")
    assert browser.get("/unsubscribes/closing/email/add").status == 422
    assert browser.post("/unsubscribes/closing/email/add", typed).status == 422
    assert not [link for link in browser.get("/unsubscribes/closing/email").links if link.endswith("/add")]
    path = record_of(browser, "kept.closed@example.com")
    assert not [link for link in browser.get(path).links if link.endswith("/resubscribe")]
    assert "No records found" in browser.post("/unsubscribes", {"address": "only.admins@example.com"}).text
