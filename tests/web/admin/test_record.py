"""The page of a record: what it blocks, its history, and manual changes.

Source: docs/interface.md sections D5, D6 and D11.
"""

import pytest

from stoplist.organizations.groups import create_group, retire_group
from stoplist.rfc3339 import format_ms
from tests.builders import audit_rows
from tests.constants import DAY_S
from tests.web.admin.opt_outs import PagesPartner, clock_of, group_id, new_organization, record_of
from tests.web.admin.pages import PageResponse, Pages

EARLIER = "2047-01-10T09:30:15Z"


def blocks_section(shown: PageResponse) -> str:
    """Return the text of the section on what the record blocks."""
    return shown.text.partition(" Blocks ")[2].partition("Details Organization")[0]


def test_a_record_states_what_it_blocks(pages: Pages) -> None:
    """A group's record blocks its messages, the all-groups record blocks all; neither changes the other."""
    partner, browser = PagesPartner(pages), pages.signed_in("viewer")
    partner.submit("plain@example.com", group_id=group_id(pages, "Reminders"))
    shown = browser.get(record_of(browser, "plain@example.com"))
    assert "Acme Shoes may not send Reminders messages by e-mail to this address." in blocks_section(shown)
    assert "This record does not block messages of other groups." in blocks_section(shown)

    partner.submit("plain@example.com", all_groups=True)
    found = browser.post("/unsubscribes", {"address": "plain@example.com"})
    every, reminders = [link for link in found.links if link.rpartition("/")[2].isdigit()]
    assert "Acme Shoes may not send any messages by e-mail to this address." in blocks_section(browser.get(every))
    assert "The record for all groups also blocks all other messages." in blocks_section(browser.get(reminders))
    assert every in browser.get(reminders).links

    clock_of(pages).advance(1)
    partner.resubscribe("plain@example.com", group_id=group_id(pages, "Reminders"))
    shown = browser.get(reminders)
    assert "This record blocks nothing, since the person resubscribed." in blocks_section(shown)
    assert "are still suppressed" in blocks_section(shown)


def test_a_resubscribed_record_blocks_nothing(pages: Pages) -> None:
    partner, browser = PagesPartner(pages), pages.signed_in("viewer")
    partner.submit({"address": "again@example.com", "occurred_at": EARLIER})
    partner.resubscribe("again@example.com")
    shown = browser.get(record_of(browser, "again@example.com"))
    assert "This record blocks nothing. Newsletter messages by e-mail may be sent to this address." in blocks_section(
        shown
    )


def test_history_shows_times_sender_and_submission(pages: Pages) -> None:
    """Every version of the record has them."""
    partner = PagesPartner(pages, label="Shop <b>export</b>")
    sent = partner.submit(
        {"address": "history@example.com", "occurred_at": EARLIER, "reason": "complaint", "source": "form <i>7</i>"}
    )
    clock_of(pages).advance(60)
    browser = pages.signed_in("admin")
    path = record_of(browser, "history@example.com")
    form = browser.get(f"{path}/resubscribe").form(f"{path}/resubscribe")
    browser.send(form, occurred_at="2047-01-15T08:00:30", stated_reason="Phone call, ticket 4711")
    shown = browser.get(path)
    history = shown.text.partition("History")[2]
    newest, oldest = history.index("ticket 4711"), history.index("form <i>7</i>")
    assert newest < oldest
    # Never earlier than the record before, which another test may have stored at a later time of the clock.
    recorded_ms = pages.app.value("SELECT recorded_ms FROM unsubscribe_versions WHERE address = 'history@example.com'")
    for text in ("2047-01-10 09:30:15", format_ms(recorded_ms)[:19].replace("T", " "), "Complaint"):
        assert " ".join(text.split()) in history
    assert "admin@people.example" in history
    assert "Shop <b>export</b>" in history
    assert "<b>export" not in shown.html
    assert f"/unsubscribes/{sent['submission_id']}" in shown.links
    assert f"/settings/keys/{partner.key.client_id}" in shown.links
    assert "Printed on 2047-01-15 08:01:00 UTC by admin@people.example" in shown.text


def test_a_link_to_an_earlier_change_shows_the_current_record(pages: Pages) -> None:
    """The title holds no address."""
    partner, browser = PagesPartner(pages), pages.signed_in("viewer")
    partner.submit({"address": "kept.link@example.com", "occurred_at": EARLIER})
    path = record_of(browser, "kept.link@example.com")
    partner.resubscribe("kept.link@example.com")
    shown = browser.get(path)
    assert "Resubscribed" in shown.text
    assert "kept.link" not in shown.title
    assert record_of(browser, "kept.link@example.com") != path


def test_an_admin_resubscribes_manually(pages: Pages) -> None:
    """The form takes a stated reason and a time, but no address; the audit has it."""
    partner, browser = PagesPartner(pages), pages.signed_in("admin")
    partner.submit({"address": "back@example.com", "occurred_at": EARLIER})
    path = record_of(browser, "back@example.com")
    page = browser.get(f"{path}/resubscribe")
    assert "back@example.com" in page.text
    assert "back@example.com" not in page.title
    answer = browser.send(
        page.form(f"{path}/resubscribe"), occurred_at="2047-01-15T07:00", stated_reason="Signed letter"
    )
    assert answer.location is not None
    assert answer.location.endswith("?note=resubscribed-updated")
    assert "back" not in answer.location
    shown = browser.follow(answer)
    assert "The resubscription was recorded" in shown.text
    assert "Signed letter" in shown.text
    row = pages.app.run(audit_rows(pages.app.database))[-1]
    assert (row.action, row.actor) == ("resubscribe.by_hand", "person admin@people.example")


def test_an_older_resubscription_changes_nothing(pages: Pages) -> None:
    """The page shows the time of the later act."""
    partner, browser = PagesPartner(pages), pages.signed_in("admin")
    partner.submit({"address": "outranked@example.com", "occurred_at": "2047-01-12T10:11:12Z"})
    path = record_of(browser, "outranked@example.com")
    shown = browser.follow(
        browser.submit_form(f"{path}/resubscribe", occurred_at="2047-01-11T00:00", stated_reason="An old letter")
    )
    assert "Nothing changed" in shown.text
    assert "Last known act2047-01-12 10:11:12 UTC" in shown.text
    assert "may not send Newsletter messages" in shown.text


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"occurred_at": "", "stated_reason": "Said so"}, "occurred_at"),
        ({"occurred_at": "last week", "stated_reason": "Said so"}, "occurred_at"),
        ({"occurred_at": "2047-02-30T10:00", "stated_reason": "Said so"}, "occurred_at"),
        ({"occurred_at": "2047-01-16T00:00", "stated_reason": "In the future"}, "occurred_at"),
        ({"occurred_at": "2047-01-14T00:00", "stated_reason": "  "}, "stated_reason"),
        ({"occurred_at": "2047-01-14T00:00", "stated_reason": "x" * 201}, "stated_reason"),
    ],
)
def test_a_resubscription_needs_a_time_and_a_stated_reason(pages: Pages, typed: dict[str, str], field: str) -> None:
    """Typed values are kept and nothing is recorded."""
    partner, browser = new_organization(pages), pages.signed_in("administrator")
    partner.submit({"address": "needs@example.com", "occurred_at": EARLIER})
    path = f"/unsubscribes/{partner.slug}/email/1/resubscribe"
    shown = browser.post(path, typed)
    assert shown.status == 422
    assert f'id="{field}-problem"' in shown.html
    assert {name: text.strip() for name, text in typed.items()}.items() <= dict(shown.form(path).values).items()
    assert "may not send Newsletter messages" in browser.get(path.removesuffix("/resubscribe")).text


def test_an_admin_opts_an_address_out_again(pages: Pages) -> None:
    """The act is dated now if no time is given."""
    partner, browser = PagesPartner(pages), pages.signed_in("admin")
    partner.resubscribe("wavers@example.com")
    path = record_of(browser, "wavers@example.com")
    assert f"{path}/unsubscribe" in browser.get(path).links
    shown = browser.follow(
        browser.submit_form(f"{path}/unsubscribe", reason="legal", stated_reason="Letter of a lawyer")
    )
    assert "replaces the resubscription" in shown.text
    assert "Legal" in shown.text


@pytest.mark.parametrize("change", ["resubscribe", "unsubscribe"])
def test_only_admins_change_records(pages: Pages, change: str) -> None:
    """403 for viewers, 404 for outsiders, and no links for either."""
    partner, viewer = PagesPartner(pages), pages.signed_in("viewer")
    partner.submit(f"not.{change}@example.com")
    path = record_of(viewer, f"not.{change}@example.com")
    assert not [link for link in viewer.get(path).links if link.endswith("subscribe")]
    typed = {"occurred_at": "2047-01-14T00:00", "stated_reason": "Said so"}
    before = pages.app.value("SELECT COUNT(*) AS number FROM submissions")
    for name, status in (("viewer", 403), ("other", 404), ("nobody", 404)):
        assert pages.signed_in(name).get(f"{path}/{change}").status == status
        assert pages.signed_in(name).post(f"{path}/{change}", typed).status == status
    assert pages.app.value("SELECT COUNT(*) AS number FROM submissions") == before


def test_records_of_a_retired_group_are_fixed(pages: Pages) -> None:
    partner = new_organization(pages, "tired")
    group = pages.administer(create_group, org_slug="tired", name="Old news").group_id
    partner.submit("tired@example.com", group_id=group)
    browser, path = pages.signed_in("administrator"), "/unsubscribes/tired/email/1"
    assert f"{path}/resubscribe" in browser.get(path).links
    pages.administer(retire_group, group_id=group)
    shown = browser.get(path)
    assert shown.status == 200
    assert f"{path}/resubscribe" not in shown.links
    assert browser.post(f"{path}/resubscribe", {"occurred_at": "2047-01-15T08:00", "stated_reason": "x"}).status == 422


@pytest.mark.parametrize("number", ["0", "99999", "-1", "x", "9" * 30, "1.0", "\u0661"])
def test_an_unknown_change_is_not_found(pages: Pages, number: str) -> None:
    """Nor is one of another organization."""
    assert pages.signed_in("administrator").get(f"/unsubscribes/acme/email/{number}").status == 404
    assert pages.signed_in("viewer").get("/unsubscribes/bolt/email/1").status == 404


def test_text_of_partners_is_isolated_in_its_direction(pages: Pages) -> None:
    """Letters that run from right to left do not turn what stands around them."""
    browser = pages.signed_in("viewer")
    PagesPartner(pages).submit({"address": "around@example.com", "source": "\u05d0\u05d1<b>"})
    shown = browser.get(record_of(browser, "around@example.com"))
    assert shown.html.count("\u05d0") == shown.html.count("<bdi>\u05d0\u05d1&lt;b&gt;</bdi>") == 2


def test_a_reversed_act_no_longer_counts(pages: Pages) -> None:
    """After a reversal no act of the person is known, and the page says so."""
    sent = PagesPartner(pages).submit("reversed@example.com")
    browser = pages.signed_in("administrator")
    path = f"/unsubscribes/{sent['submission_id']}/reverse"
    browser.submit_form(path)
    clock_of(pages).advance(DAY_S / 24)
    shown = browser.get(record_of(browser, "reversed@example.com"))
    assert "None. Any new opt-out takes effect." in shown.text
    assert "Opt-out was a mistake: no consent known" in shown.text
    assert "No consent of the person is known" in shown.text
    assert "Resubscribed" not in shown.text
