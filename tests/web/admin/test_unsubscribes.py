"""The search for an address over everything that a person may see. docs/interface.md sections D5, D7 and D11."""

import pytest

from stoplist.organizations.organizations import close_organization, create_organization
from tests.web.admin.opt_outs import Partner, group_id
from tests.web.admin.pages import Pages

PATH = "/unsubscribes"


def test_an_address_is_found_in_any_spelling_in_every_organization_that_the_person_sees(pages: Pages) -> None:
    """A complaint names an address, not an organization: what each holds of it is shown, with a way to the record."""
    Partner(pages, "acme").submit("everywhere@example.com", all_groups=True)
    Partner(pages, "bolt").submit({"address": "everywhere@example.com", "reason": "complaint"})
    browser = pages.signed_in("both")
    shown = browser.send(browser.get(PATH).form(PATH), address="  Everywhere@EXAMPLE.com ")
    assert shown.status == 200
    for text in ("Acme Shoes", "Every message", "Bolt & Nut", "Messages of Newsletter", "Complaint", "2 records bar"):
        assert text in shown.text
    records = [
        link for link in shown.links if link.startswith(("/unsubscribes/acme/email/", "/unsubscribes/bolt/email/"))
    ]
    assert len(records) == 2
    for path in records:
        assert browser.get(path).status == 200


def test_what_somebody_may_not_see_is_not_found(pages: Pages) -> None:
    """Neither the record nor the organization of others is on the page."""
    Partner(pages, "bolt").submit("elsewhere@example.com")
    shown = pages.signed_in("viewer").post(PATH, {"address": "elsewhere@example.com"})
    assert "No opt-out found" in shown.text
    assert "the one organization that you see" in shown.text
    assert "bolt" not in shown.html.lower()
    assert "Bolt" in pages.signed_in("other").post(PATH, {"address": "elsewhere@example.com"}).text


def test_a_phone_number_is_looked_for_in_text_messages_and_calls(pages: Pages) -> None:
    """In the spelling of the one who complains."""
    partner = Partner(pages)
    partner.submit("+442079460958", channel="sms")
    partner.submit("+442079460958", channel="phone", all_groups=True)
    shown = pages.signed_in("viewer").post(PATH, {"address": "+44 (0)20 7946 0958"})
    assert {"/unsubscribes/acme/sms", "/unsubscribes/acme/phone"} <= set(shown.links)
    assert "+442079460958" in shown.text
    assert "by SMS and phone" in shown.text


def test_a_group_that_the_record_of_all_groups_bars_is_said_to_be_barred(pages: Pages) -> None:
    """Somebody who resubscribed to one group gets nothing while all groups are barred."""
    partner = Partner(pages)
    partner.submit("stays.barred@example.com", all_groups=True)
    partner.resubscribe("stays.barred@example.com", group_id=group_id(pages, "Reminders"))
    shown = pages.signed_in("viewer").post(PATH, {"address": "stays.barred@example.com"})
    assert "Nothing itself, but all groups are barred" in shown.text
    assert "One record bars messages" in shown.text


def test_a_search_that_finds_nothing_says_where_it_looked_and_what_to_do_next(pages: Pages) -> None:
    """Nothing found is an answer too; whoever may add is told that it can be added."""
    asked = {"address": "Not.Known@Example.com"}
    shown = pages.signed_in("admin").post(PATH, asked)
    assert "No opt-out found" in shown.text
    assert "not.known@example.com" in shown.text
    assert "add it by hand" in shown.text
    assert "add it by hand" not in pages.signed_in("viewer").post(PATH, asked).text
    assert "all 2 organizations that you see" in pages.signed_in("both").post(PATH, asked).text


@pytest.mark.parametrize("typed", ["jane@", "not an address", "", "020 7946 0958", "+44" + "9" * 10_000, "<script>@x"])
def test_what_is_no_address_is_refused_beside_the_field_and_kept(pages: Pages, typed: str) -> None:
    """The message stands at the field, which holds what was typed, escaped."""
    shown = pages.signed_in("viewer").post(PATH, {"address": typed})
    assert shown.status == 422
    assert 'id="address-problem"' in shown.html
    assert dict(shown.form(PATH).values)["address"] == typed
    assert "<script>" not in shown.html


def test_an_address_stands_in_no_link_no_title_and_no_header(pages: Pages) -> None:
    """It is posted and answered on the same page, and nothing leads on with it."""
    Partner(pages).submit("quiet@example.com")
    shown = pages.signed_in("viewer").post(PATH, {"address": "quiet@example.com"})
    assert shown.status == 200
    assert shown.title == "Unsubscribes · Stoplist"
    led = " ".join([*shown.links, *(form.action for form in shown.forms), *(value for _, value in shown.headers)])
    assert "quiet" not in led


def test_the_organizations_are_listed_with_their_channels(pages: Pages) -> None:
    """Those that the person sees, closed ones included; nobody else's."""
    pages.administer(create_organization, slug="aged", name="Shut for good", default_group="Newsletter")
    Partner(pages, "aged").submit("kept@example.com")
    pages.administer(close_organization, slug="aged")
    shown = pages.signed_in("administrator").get(PATH)
    for slug in ("acme", "bolt", "aged"):
        for channel in ("email", "sms", "phone"):
            assert f"/unsubscribes/{slug}/{channel}" in shown.links
    assert "Closed" in shown.text
    assert "Shut for good" in pages.signed_in("administrator").post(PATH, {"address": "kept@example.com"}).text
    assert not [link for link in pages.signed_in("viewer").get(PATH).links if "/bolt/" in link or "/aged/" in link]


def test_among_hundreds_of_organizations_one_is_found_by_name_or_slug(pages: Pages) -> None:
    """The page stays short, and says how many it leaves out."""
    for number in range(60):
        pages.administer(create_organization, slug=f"chain-{number}", name=f"Chain Store {number}")
    browser = pages.signed_in("administrator")
    everything = browser.get(PATH)
    assert len([link for link in everything.links if link.endswith("/email")]) == 50
    assert "more: find one by its name or slug" in everything.text
    finding = next(form for form in everything.forms if form.method == "get")
    found = browser.send(finding, organization="STORE 57")
    assert [link for link in found.links if link.endswith("/email")] == ["/unsubscribes/chain-57/email"]
    assert "No organization that you see" in browser.send(finding, organization="nowhere").text


def test_somebody_without_an_organization_is_told_whom_to_ask(pages: Pages) -> None:
    """There is nothing to search, and the page says why."""
    shown = pages.signed_in("nobody").get(PATH)
    assert "Ask an administrator" in shown.text
    assert not [form for form in shown.forms if form.action == PATH]


def test_the_id_of_a_submission_leads_to_it(pages: Pages) -> None:
    """A partner names its batch by it; one of somebody else's organization is not there."""
    submission_id = Partner(pages, "bolt").submit("batch@example.com")["submission_id"]
    browser, viewer = pages.signed_in("other"), pages.signed_in("viewer")
    shown = browser.follow(browser.post(PATH, {"address": f" {submission_id} "}))
    assert shown.title.startswith(f"Submission {submission_id}")
    for text in (submission_id, "sub_none"):
        refused = viewer.post(PATH, {"address": text})
        assert (refused.status, 'id="address-problem"' in refused.html) == (422, True)
        assert "There is no submission of that id" in refused.text


def test_a_record_leads_to_the_search_for_its_address_everywhere(pages: Pages) -> None:
    """The address is posted there, and stands in no address line."""
    for slug in ("acme", "bolt"):
        Partner(pages, slug).submit("twofold@example.com")
    browser = pages.signed_in("both")
    found = browser.post(PATH, {"address": "twofold@example.com"})
    (record,) = [link for link in found.links if link.startswith("/unsubscribes/acme/email/")]
    shown = browser.get(record)
    everywhere = browser.send(shown.form(PATH))
    assert "2 records bar messages" in everywhere.text
    assert not any("twofold" in link for link in shown.links)


def test_what_changed_nothing_does_not_look_like_success(pages: Pages) -> None:
    """Whoever resubscribes somebody who opted out later sees a warning, and why."""
    partner = Partner(pages)
    partner.submit({"address": "later@example.com", "occurred_at": "2047-01-10T08:00:00Z"})
    browser = pages.signed_in("admin")
    (record,) = [
        link
        for link in browser.post(PATH, {"address": "later@example.com"}).links
        if link.startswith("/unsubscribes/acme/email/")
    ]
    form = browser.get(f"{record}/resubscribe")
    assert "After the last known act, 2047-01-10 08:00:00 UTC" in form.text.replace("\N{NO-BREAK SPACE}", " ")
    answers = {
        day: browser.follow(
            browser.send(form.form(f"{record}/resubscribe"), occurred_at=f"2047-01-{day}T08:00", stated_reason="x")
        )
        for day in ("09", "11")
    }
    assert '<p class="warning" role="status">Nothing was changed' in answers["09"].html
    assert '<p class="note" role="status">The resubscription was recorded' in answers["11"].html
