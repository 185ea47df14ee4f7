"""The search for an address in all visible organizations. docs/interface.md sections D5, D7 and D11."""

import pytest
from stoplist_addresses import calling_codes

from stoplist.organizations.organizations import close_organization, create_organization
from stoplist.web.admin.opt_outs.countries import country_options
from tests.web.admin.opt_outs import PagesPartner, group_id
from tests.web.admin.pages import Pages

PATH = "/unsubscribes"


def test_an_address_is_found_in_all_visible_organizations(pages: Pages) -> None:
    """Any spelling finds it, with links to the records."""
    PagesPartner(pages, "acme").submit("everywhere@example.com", all_groups=True)
    PagesPartner(pages, "bolt").submit({"address": "everywhere@example.com", "reason": "complaint"})
    browser = pages.signed_in("both")
    shown = browser.submit_form(PATH, address="  Everywhere@EXAMPLE.com ")
    assert shown.status == 200
    for text in ("Acme Shoes", "All messages", "Bolt & Nut", "Newsletter messages", "Complaint", "2 records block"):
        assert text in shown.text
    records = [
        link for link in shown.links if link.startswith(("/unsubscribes/acme/email/", "/unsubscribes/bolt/email/"))
    ]
    assert len(records) == 2
    for path in records:
        assert browser.get(path).status == 200


def test_invisible_records_are_not_found(pages: Pages) -> None:
    """Neither the record nor its organization is on the page."""
    PagesPartner(pages, "bolt").submit("elsewhere@example.com")
    shown = pages.signed_in("viewer").post(PATH, {"address": "elsewhere@example.com"})
    assert "No records found" in shown.text
    assert "in 1 organization." in shown.text
    assert "bolt" not in shown.html.lower()
    assert "Bolt" in pages.signed_in("other").post(PATH, {"address": "elsewhere@example.com"}).text


def test_a_phone_number_is_searched_in_sms_and_phone(pages: Pages) -> None:
    """Any spelling finds it."""
    partner = PagesPartner(pages)
    partner.submit("+442079460958", channel="sms")
    partner.submit("+442079460958", channel="phone", all_groups=True)
    shown = pages.signed_in("viewer").post(PATH, {"address": "+44 (0)20 7946 0958"})
    assert {"/unsubscribes/acme/sms", "/unsubscribes/acme/phone"} <= set(shown.links)
    assert "+442079460958" in shown.text
    assert "Searched SMS and phone in" in shown.text


def test_a_group_suppressed_by_the_all_groups_record_is_marked(pages: Pages) -> None:
    """Somebody who resubscribed to one group gets nothing while all groups are suppressed."""
    partner = PagesPartner(pages)
    partner.submit("stays.suppressed@example.com", all_groups=True)
    partner.resubscribe("stays.suppressed@example.com", group_id=group_id(pages, "Reminders"))
    shown = pages.signed_in("viewer").post(PATH, {"address": "stays.suppressed@example.com"})
    assert "Nothing, but all groups are suppressed" in shown.text
    assert "1 record blocks messages" in shown.text


def test_an_empty_search_result_names_the_next_step(pages: Pages) -> None:
    """Admins are told how to add an opt-out."""
    asked = {"address": "Not.Known@Example.com"}
    shown = pages.signed_in("admin").post(PATH, asked)
    assert "No records found" in shown.text
    assert "not.known@example.com" in shown.text
    assert "Add opt-out" in shown.text
    assert "Add opt-out" not in pages.signed_in("viewer").post(PATH, asked).text
    assert "in 2 organizations." in pages.signed_in("both").post(PATH, asked).text


@pytest.mark.parametrize("typed", ["jane@", "not an address", "", "example.org", "+44" + "9" * 10_000, "<script>@x"])
def test_an_invalid_address_is_refused_and_kept(pages: Pages, typed: str) -> None:
    shown = pages.signed_in("viewer").post(PATH, {"address": typed})
    assert shown.status == 422
    assert 'id="address-problem"' in shown.html
    assert dict(shown.form(PATH).values)["address"] == typed
    assert "<script>" not in shown.html


def test_a_national_number_asks_for_its_country(pages: Pages) -> None:
    """It is found with it, without being typed again."""
    PagesPartner(pages).submit("+442079460123", channel="sms")
    browser = pages.signed_in("viewer")
    asked = browser.submit_form(PATH, address="020 7946 0123")
    assert asked.status == 422
    assert "This number has no country code. Select its country" in asked.text
    assert 'id="country-problem"' in asked.html
    found = browser.send(asked.form(PATH), country="GB")
    assert "Records for +442079460123" in found.text
    assert dict(found.form(PATH).values)["country"] == "GB"
    assert "country" not in dict(browser.get(PATH).form(PATH).values)


def test_every_country_with_a_number_plan_has_a_name() -> None:
    options = country_options()
    assert {country for country, _ in options} == set(calling_codes())
    assert ("GB", "United Kingdom (+44)") in options
    assert len({name for _, name in options}) == len(options)


def test_several_addresses_are_searched_at_once(pages: Pages) -> None:
    """Either field takes them; those without records and those that are no addresses are named."""
    PagesPartner(pages).submit("one@several.example", "two@several.example")
    browser = pages.signed_in("viewer")
    form = browser.get(PATH).form(PATH)
    for typed in (
        {"addresses": "one@several.example\nTWO@several.example\nthree@several.example\n<b>four"},
        {"address": "one@several.example; two@several.example,three@several.example, <b>four"},
    ):
        shown = browser.send(form, **typed)
        assert shown.status == 200
        assert "Records for 3 addresses 2 records block messages. Searched e-mail in 1 organization." in shown.text
        assert "No records three@several.example" in shown.text
        assert "Not an address <b>four Only a whole address can be searched" in shown.text
        assert "<b>four" not in shown.html
        assert len([link for link in shown.links if link.startswith("/unsubscribes/acme/email/")]) == 2
    refused = browser.send(form, addresses="\n".join(f"p{number}@x.org" for number in range(101)))
    assert (refused.status, "At most 100 addresses" in refused.text) == (422, True)
    assert "p100@x.org" in refused.html


def test_an_address_is_in_no_link_title_or_header(pages: Pages) -> None:
    PagesPartner(pages).submit("quiet@example.com")
    shown = pages.signed_in("viewer").post(PATH, {"address": "quiet@example.com"})
    assert shown.status == 200
    assert shown.title == "Unsubscribes · Stoplist"
    led = " ".join([*shown.links, *(form.action for form in shown.forms), *(value for _, value in shown.headers)])
    assert "quiet" not in led


def test_visible_organizations_are_listed_with_channels(pages: Pages) -> None:
    """Closed ones included."""
    pages.administer(create_organization, slug="aged", name="Shut for good", default_group="Newsletter")
    PagesPartner(pages, "aged").submit("kept@example.com")
    pages.administer(close_organization, slug="aged")
    shown = pages.signed_in("administrator").get(PATH)
    for slug in ("acme", "bolt", "aged"):
        for channel in ("email", "sms", "phone"):
            assert f"/unsubscribes/{slug}/{channel}" in shown.links
    assert "Closed" in shown.text
    assert "Shut for good" in pages.signed_in("administrator").post(PATH, {"address": "kept@example.com"}).text
    assert not [link for link in pages.signed_in("viewer").get(PATH).links if "/bolt/" in link or "/aged/" in link]


def test_a_person_without_a_role_is_told_whom_to_ask(pages: Pages) -> None:
    shown = pages.signed_in("nobody").get(PATH)
    assert "Ask an administrator" in shown.text
    assert not [form for form in shown.forms if form.action == PATH]


def test_a_submission_id_leads_to_the_submission(pages: Pages) -> None:
    """One of another organization is not found."""
    submission_id = PagesPartner(pages, "bolt").submit("batch@example.com")["submission_id"]
    browser, viewer = pages.signed_in("other"), pages.signed_in("viewer")
    shown = browser.follow(browser.post(PATH, {"address": f" {submission_id} "}))
    assert shown.title.startswith(f"Submission {submission_id}")
    for text in (submission_id, "sub_none"):
        refused = viewer.post(PATH, {"address": text})
        assert (refused.status, 'id="address-problem"' in refused.html) == (422, True)
        assert "There is no submission of that id" in refused.text


def test_a_record_searches_its_address_everywhere(pages: Pages) -> None:
    """It does so by POST, so that no URL holds the address."""
    for slug in ("acme", "bolt"):
        PagesPartner(pages, slug).submit("twofold@example.com")
    browser = pages.signed_in("both")
    found = browser.post(PATH, {"address": "twofold@example.com"})
    (record,) = [link for link in found.links if link.startswith("/unsubscribes/acme/email/")]
    shown = browser.get(record)
    everywhere = browser.send(shown.form(PATH))
    assert "2 records block messages" in everywhere.text
    assert not any("twofold" in link for link in shown.links)


def test_a_change_without_effect_is_a_warning(pages: Pages) -> None:
    partner = PagesPartner(pages)
    partner.submit({"address": "later@example.com", "occurred_at": "2047-01-10T08:00:00Z"})
    browser = pages.signed_in("admin")
    (record,) = [
        link
        for link in browser.post(PATH, {"address": "later@example.com"}).links
        if link.startswith("/unsubscribes/acme/email/")
    ]
    form = browser.get(f"{record}/resubscribe")
    assert "Must be after the last known act, 2047-01-10 08:00:00 UTC" in form.text
    answers = {
        day: browser.follow(
            browser.send(form.form(f"{record}/resubscribe"), occurred_at=f"2047-01-{day}T08:00", stated_reason="x")
        )
        for day in ("09", "11")
    }
    assert '<p class="warning" role="status">Nothing changed' in answers["09"].html
    assert '<p class="note" role="status">The resubscription was recorded' in answers["11"].html
