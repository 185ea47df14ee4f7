"""Opt-outs that people record by hand. docs/interface.md sections D6 and D11."""

import pytest

from stoplist.organizations.groups import create_group, unset_default_group
from stoplist.organizations.organizations import close_organization
from tests.builders import audit_rows
from tests.web.admin.opt_outs import Partner, clock_of, group_id, new_organization, record_of
from tests.web.admin.pages import Pages

PATH = "/unsubscribes/acme/email/add"
SAID = "She asked at the desk"


def test_an_admin_records_an_opt_out_and_is_shown_the_record(pages: Pages) -> None:
    """In any spelling, for the default group unless another is chosen, as of now, with the reason that was stated."""
    browser = pages.signed_in("admin")
    answer = browser.send(browser.get(PATH).form(PATH), address=" Desk@Example.COM ", stated_reason=SAID)
    assert answer.status == 303
    assert answer.location is not None
    assert "admin" not in answer.location.lower()
    shown = browser.follow(answer)
    assert "The opt-out was recorded." in shown.text
    for text in ("desk@example.com", "no messages of Newsletter", SAID, "Manual", "admin@people.example"):
        assert text in shown.text
    assert "When it happened2047-01-15 08:00:00 UTC" in shown.text
    row = pages.app.run(audit_rows(pages.app.database))[-1]
    assert (row.action, row.actor) == ("unsubscribe.by_hand", "person admin@people.example")


def test_one_group_or_all_of_them_is_left(pages: Pages) -> None:
    """As the person chose; nothing wider silently."""
    browser = pages.signed_in("admin")
    form = browser.get(PATH).form(PATH)
    reminders = browser.send(
        form, address="a.group@example.com", group_id=group_id(pages, "Reminders"), stated_reason=SAID
    )
    assert "no messages of Reminders" in browser.follow(reminders).text
    every = browser.send(form, address="all.groups@example.com", group_id="all", stated_reason=SAID)
    assert "may send nothing by e-mail" in browser.follow(every).text


def test_a_time_and_a_reason_can_be_stated(pages: Pages) -> None:
    """UTC, to the second."""
    browser = pages.signed_in("admin")
    form = browser.get(PATH).form(PATH)
    changes = {"occurred_at": "2047-01-12T10:11:12", "reason": "legal", "stated_reason": SAID}
    shown = browser.follow(browser.send(form, address="dated@example.com", **changes))
    assert "When it happened2047-01-12 10:11:12 UTC" in shown.text
    assert "Legal" in shown.text


def test_it_says_what_became_of_an_opt_out_that_changed_nothing(pages: Pages) -> None:
    """Sent twice it is unchanged; older than a resubscription it is outranked, and the page says by what."""
    browser, partner = pages.signed_in("admin"), Partner(pages)
    form = browser.get(PATH).form(PATH)
    for expected in ("The opt-out was recorded.", "The person had opted out already"):
        assert expected in browser.follow(browser.send(form, address="twice@example.com", stated_reason=SAID)).text
    clock_of(pages).advance(60)
    partner.resubscribe("twice@example.com")
    late = browser.send(form, address="twice@example.com", occurred_at="2047-01-14T00:00", stated_reason=SAID)
    shown = browser.follow(late)
    assert "Nothing was changed: the person resubscribed later" in shown.text
    assert "Last known act2047-01-15 08:01:00 UTC" in shown.text
    again = browser.send(form, address="twice@example.com", stated_reason=SAID)
    assert "takes the place of the resubscription" in browser.follow(again).text


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
def test_what_is_wrong_is_said_beside_its_field(pages: Pages, typed: dict[str, str], field: str) -> None:
    """Nothing is recorded, and what was typed is kept."""
    before = pages.app.value("SELECT COUNT(*) AS number FROM submissions")
    browser = pages.signed_in("admin")
    filled = {"address": "wrong@example.com", "stated_reason": SAID} | typed
    shown = browser.send(browser.get(PATH).form(PATH), **filled)
    assert shown.status == 422
    assert f'id="{field}-problem"' in shown.html
    assert "<script>" not in shown.html
    kept = dict(shown.form(PATH).values)
    assert kept["address"] == filled["address"]
    assert kept["stated_reason"] == filled["stated_reason"]
    assert pages.app.value("SELECT COUNT(*) AS number FROM submissions") == before


def test_without_a_default_group_one_has_to_be_chosen(pages: Pages) -> None:
    """Never silently all of them."""
    new_organization(pages, "no-default")
    pages.administer(create_group, org_slug="no-default", name="Offers")
    pages.administer(unset_default_group, org_slug="no-default")
    browser, path = pages.signed_in("administrator"), "/unsubscribes/no-default/sms/add"
    page = browser.get(path)
    assert "Phone number" in page.text
    shown = browser.send(page.form(path), address="+442079460958", stated_reason=SAID)
    assert shown.status == 422
    assert 'id="group_id-problem"' in shown.html


def test_only_admins_add(pages: Pages) -> None:
    """A viewer is told so; for an outsider there is no such page. A closed organization stays as it is."""
    typed = {"address": "only.admins@example.com", "group_id": "all", "stated_reason": SAID}
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
    assert "No opt-out found" in browser.post("/unsubscribes", {"address": "only.admins@example.com"}).text
