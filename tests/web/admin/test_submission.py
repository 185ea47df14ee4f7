"""The page of a submission, and its reversal. docs/interface.md sections D6 and D11, Reversing."""

from urllib.parse import urlencode

import msgspec
import pytest

from stoplist.oauth.credentials import Changes, update_credential
from stoplist.web.app import build_app
from tests.builders import audit_rows, execute
from tests.web.admin.opt_outs import PagesPartner, clock_of, new_organization, record_of
from tests.web.admin.pages import PageResponse, Pages
from tests.web.application import Application


def shown_counts(shown: PageResponse) -> dict[str, str]:
    """Return the hidden fields with the counts that the page shows."""
    (form,) = [form for form in shown.forms if form.action.endswith("/reverse")]
    return dict(form.values)


def test_a_submission_shows_sender_time_and_counts(pages: Pages) -> None:
    """It has a link to every record."""
    partner = new_organization(pages, "batch")
    partner.submit("known@example.com")
    sent = partner.submit("one@example.com", "two@example.com", "known@example.com")
    shown = pages.signed_in("administrator").get(f"/unsubscribes/{sent['submission_id']}")
    for text in ("Received3", "Created2", "Updated0", "Unchanged1", "192.0.2.1", "2047-01-15 08:00:00 UTC"):
        assert text in shown.text
    assert f"/settings/keys/{partner.key.client_id}" in shown.links
    assert {"/unsubscribes/batch/email/2", "/unsubscribes/batch/email/3"} <= set(shown.links)
    assert "one@example.com" in shown.text


def test_records_are_listed_page_by_page(pages: Pages) -> None:
    partner = new_organization(pages, "many")
    sent = partner.submit(*(f"person{number}@example.com" for number in range(120)))
    browser, seen, path = pages.signed_in("administrator"), [], f"/unsubscribes/{sent['submission_id']}"
    while path:
        shown = browser.get(path)
        seen += [link.rpartition("/")[2] for link in shown.links if link.startswith("/unsubscribes/many/email/")]
        path = next((link for link in shown.links if "after=" in link), "")
    assert seen == [str(number) for number in range(1, 121)]


def test_an_invalid_page_is_not_found(pages: Pages) -> None:
    sent = new_organization(pages, "places").submit("one@example.com")
    browser = pages.signed_in("administrator")
    for page in ("", "/reverse"):
        for after in ("9223372036854775808", "9" * 19, "-1", "x", "\N{ARABIC-INDIC DIGIT ONE}"):
            target = f"/unsubscribes/{sent['submission_id']}{page}?{urlencode({'after': after})}"
            assert browser.get(target).status == 404


def test_a_submission_without_changes_says_so(pages: Pages) -> None:
    partner = new_organization(pages, "quiet")
    partner.submit({"address": "same@example.com", "occurred_at": "2047-01-10T00:00:00Z"})
    sent = partner.submit("same@example.com")
    shown = pages.signed_in("administrator").get(f"/unsubscribes/{sent['submission_id']}")
    assert "No records were changed." in shown.text
    assert not [link for link in shown.links if link.endswith("/reverse")]


def test_an_administrator_reverses_a_submission(pages: Pages) -> None:
    """The page shows what returns and what is left out; the reversal does exactly that."""
    partner = new_organization(pages, "mistake")
    partner.submit({"address": "before@example.com", "status": "resubscribed", "occurred_at": "2047-01-10T00:00:00Z"})
    sent = partner.submit("new@example.com", "before@example.com", "again@example.com", "changed@example.com")
    clock_of(pages).advance(60)
    PagesPartner(pages, "mistake").submit("again@example.com")
    partner.resubscribe("changed@example.com")
    browser, path = pages.signed_in("administrator"), f"/unsubscribes/{sent['submission_id']}/reverse"
    page = browser.get(path)
    assert shown_counts(page) == {"restored": "1", "corrected": "1", "superseded": "1", "confirmed": "1"}
    assert "Reverse 2 records" in page.text
    left_out = page.text.partition("Left out Address")[2]
    assert "again@example.com Submitted again later" in left_out
    assert "changed@example.com Changed later" in left_out
    assert "new@example.com" not in left_out

    done = browser.follow(browser.send(page.form(path)))
    assert "The submission was reversed." in done.text
    assert "Already reversed2" in done.text
    assert "Nothing is left to reverse." in done.text
    assert "new@example.com" not in done.text
    assert "Opt-out was a mistake: no consent known" in browser.get(record_of(browser, "new@example.com")).text
    before = browser.get(record_of(browser, "before@example.com"))
    assert "Resubscribed" in before.text
    assert f"reversed submission {sent['submission_id']}" in before.text
    shown = browser.get(f"/unsubscribes/{sent['submission_id']}")
    assert "back in their earlier state" in shown.text
    reversals = [link for link in shown.links if link.startswith("/unsubscribes/sub_") and "/reverse" not in link]
    assert f"/unsubscribes/{sent['submission_id']}" in browser.get(reversals[0]).links
    row = [row for row in pages.app.run(audit_rows(pages.app.database)) if row.action != "person.read"][-1]
    assert (row.action, row.actor) == ("submission.reverse", "person administrator@people.example")


def test_what_is_too_old_is_not_reversed(pages: Pages) -> None:
    """Its page says so instead of offering it, the reversal refuses, and the history of a record says what is kept."""
    sent = new_organization(pages, "old-mistake").submit("old@example.com")
    age = "UPDATE submissions SET received_ms = received_ms - 86400001 WHERE submission_id = :id"
    pages.app.run(execute(pages.app.database, age, id=sent["submission_id"]))
    app = Application(pages.app.run, pages.app.database, clock_of(pages))
    app._app = build_app(msgspec.structs.replace(app.parts, history_days=1), trusted_proxies=()).asgi
    path = f"/unsubscribes/{sent['submission_id']}"
    offered = pages.signed_in("administrator").get(path)
    assert f"{path}/reverse" in offered.links
    browser = pages.with_app(app).signed_in("administrator")
    shown = browser.get(path)
    sentence = "received more than 1 day ago"
    assert f"{path}/reverse" not in shown.links
    assert sentence in shown.text
    refused = browser.get(f"{path}/reverse")
    assert (refused.status, sentence in refused.text) == (422, True)
    counts = {"restored": "0", "corrected": "1", "superseded": "0", "confirmed": "0"}
    refused = browser.post(f"{path}/reverse", counts)
    assert (refused.status, sentence in refused.text) == (422, True)
    (record,) = [link for link in shown.links if link.startswith("/unsubscribes/old-mistake/email/")]
    assert "more than 1 day ago are no longer kept" in browser.get(record).text


def test_changed_counts_must_be_confirmed_again(pages: Pages) -> None:
    """Only what was shown is reversed."""
    partner = new_organization(pages, "meanwhile")
    sent = partner.submit("one@example.com", "two@example.com")
    browser, path = pages.signed_in("administrator"), f"/unsubscribes/{sent['submission_id']}/reverse"
    page = browser.get(path)
    PagesPartner(pages, "meanwhile").submit("two@example.com")
    refused = browser.send(page.form(path))
    assert refused.status == 422
    assert "Check the new counts" in refused.text
    assert "Reverse 1 record" in refused.text
    assert shown_counts(refused)["confirmed"] == "1"
    assert "back in their earlier state" not in browser.get(f"/unsubscribes/{sent['submission_id']}").text
    assert "The submission was reversed." in browser.follow(browser.send(refused.form(path))).text


def test_sending_the_form_twice_reverses_once(pages: Pages) -> None:
    sent = new_organization(pages, "double").submit("one@example.com")
    browser, path = pages.signed_in("administrator"), f"/unsubscribes/{sent['submission_id']}/reverse"
    form = browser.get(path).form(path)
    assert browser.send(form).status == 303
    assert browser.send(form).status == 422
    assert (
        pages.app.value("SELECT COUNT(*) AS number FROM reversals WHERE submission_id = :id", id=sent["submission_id"])
        == 1
    )


@pytest.mark.parametrize("counts", [{}, {"restored": "x"}, {"restored": "-1"}, {"corrected": "9" * 40}])
def test_a_reversal_needs_the_counts(pages: Pages, counts: dict[str, str]) -> None:
    sent = new_organization(pages).submit("one@example.com")
    browser, path = pages.signed_in("administrator"), f"/unsubscribes/{sent['submission_id']}/reverse"
    page = browser.get(path)
    typed = {} if not counts else shown_counts(page) | counts
    refused = browser.post(path, typed)
    assert refused.status == 422
    assert "The counts to confirm are missing" in refused.text
    assert shown_counts(browser.get(path))["corrected"] == "1"


def test_only_administrators_reverse(pages: Pages) -> None:
    """Admins and viewers of the organization see the submission; for others it is not found."""
    sent = PagesPartner(pages).submit("only.administrators@example.com")
    path = f"/unsubscribes/{sent['submission_id']}"
    for name, looking, reversing in (("admin", 200, 403), ("viewer", 200, 403), ("other", 404, 404)):
        browser = pages.signed_in(name)
        shown = browser.get(path)
        assert shown.status == looking
        assert not [link for link in shown.links if link.endswith("/reverse")]
        assert ("An administrator can reverse it." in shown.text) == (looking == 200)
        assert browser.get(f"{path}/reverse").status == reversing
        counts = {"restored": "0", "corrected": "1", "superseded": "0", "confirmed": "0"}
        assert browser.post(f"{path}/reverse", counts).status == reversing
    assert "only.administrators@example.com CreatedUnsubscribed" in pages.signed_in("viewer").get(path).text


def test_an_invisible_key_is_shown_by_its_id(pages: Pages) -> None:
    """Its label is hidden if the key now covers another organization only."""
    partner = PagesPartner(pages, label="Secret project")
    sent = partner.submit("moved.key@example.com")
    path, viewer = f"/unsubscribes/{sent['submission_id']}", pages.signed_in("viewer")
    assert "Secret project" in viewer.get(path).text
    changes = Changes(organizations=("bolt",), default_organization="bolt")
    pages.administer(update_credential, client_id=partner.key.client_id, changes=changes)
    shown = viewer.get(path)
    assert shown.status == 200
    assert "Secret project" not in shown.text
    assert partner.key.client_id in shown.text


@pytest.mark.parametrize("submission_id", ["sub_x", "acme", "sub_" + "0" * 22, "sub_" + "0" * 21 + "%00", "<script>"])
def test_an_unknown_submission_is_not_found(pages: Pages, submission_id: str) -> None:
    for path in (f"/unsubscribes/{submission_id}", f"/unsubscribes/{submission_id}/reverse"):
        shown = pages.signed_in("administrator").get(path)
        assert shown.status == 404
        assert "<script>" not in shown.html
