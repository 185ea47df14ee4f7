"""The pages of an address: what is stored about a person, and their erasure (docs/interface.md section D13)."""

import json
from collections.abc import Callable

import pytest

from stoplist.rights.reads import READ_ACTION
from tests.builders import audit_rows, contents, execute
from tests.web.admin.creation import new_person
from tests.web.admin.opt_outs import PagesPartner, new_organization, record_of
from tests.web.admin.pages import Browser, PageResponse, Pages
from tests.web.admin.uploading import imported


@pytest.fixture
def partners(pages: Pages) -> list[PagesPartner]:
    """Two organizations that know the same person."""
    found = [new_organization(pages) for _ in range(2)]
    for partner in found:
        partner.submit("ann@known.example")
    return found


def admin_of(pages: Pages, *partners: PagesPartner) -> Browser:
    return new_person(pages, roles={partner.slug: "admin" for partner in partners}).browser


def asked(browser: Browser, address: str = "ann@known.example") -> PageResponse:
    """Search for the address, and ask for the erasure of the person there."""
    found = browser.post("/unsubscribes", {"address": address})
    return browser.send(found.form("/unsubscribes/erase"))


def statuses(partner: PagesPartner) -> list[tuple[str, bool]]:
    """Return what a partner is told of the person, and whether they are erased."""
    answer = partner.submit("ann@known.example")
    return [(one["status"], "address_digest" in one) for one in answer["items"]]


def test_a_person_is_erased_from_the_search(pages: Pages, partners: list[PagesPartner]) -> None:
    """The counts come first, then the typed word; in all organizations that the person administers, or in one."""
    first, second = partners
    browser = admin_of(pages, first, second)
    page = asked(browser, " Ann@KNOWN.example")
    assert "2 records of 2 organizations on this channel" in page.text
    assert "ann@known.example" in page.text
    form = page.form("/unsubscribes/erase")
    refused = browser.send(form, where=first.slug, all_upgraded="yes", word="yes")
    assert (refused.status, "Type the word erase." in refused.text) == (422, True)
    assert statuses(first) == [("unsubscribed", False)]
    done = browser.send(refused.form("/unsubscribes/erase"), word="Erase", all_upgraded="yes")
    assert (done.status, (done.location or "").partition("?")[0]) == (303, "/unsubscribes")
    assert "@" not in (done.location or "")
    assert (statuses(first), statuses(second)) == ([("unsubscribed", True)], [("unsubscribed", False)])
    page = asked(browser)
    assert "1 record of 1 organization" in page.text
    browser.send(page.form("/unsubscribes/erase"), word="erase", all_upgraded="yes")
    assert statuses(second) == [("unsubscribed", True)]
    assert "or the person was erased already" in asked(browser).text
    feed = browser.get(f"/unsubscribes/{second.slug}/email")
    (record,) = {link for link in feed.links if link.rpartition("/")[2].isdigit()}
    for action in ("erase", "unsubscribe", "resubscribe"):
        missing = browser.get(f"{record}/{action}")
        assert (missing.status, "This person was erased" in missing.text) == (404, True)


def test_what_imports_kept_of_an_address_is_erased_without_a_record(pages: Pages) -> None:
    """A rejected row goes in the organizations that the person administers alone; then nothing is left to erase."""
    own, foreign = new_organization(pages), new_organization(pages)
    administrator, at = pages.signed_in("administrator"), "2020-01-01T10:00:00Z"
    file = f"email,opted_out_at\nbob@known.example,{at}\nAnn <ann@rejected.example,{at}\n".encode()
    for partner in (own, foreign):
        imported(pages, administrator, partner.slug, file)
    browser = admin_of(pages, own)
    notes = []
    for _ in range(2):
        found = browser.post("/unsubscribes", {"address": "ann@rejected.example"})
        assert "/unsubscribes/erase" in found.links
        page = browser.submit_form("/unsubscribes/erase", address="Ann@rejected.example", channel="email")
        assert "Rows that an import rejected" in page.text
        notes.append(browser.send(page.form("/unsubscribes/erase"), word="erase").location)
    assert notes == ["/unsubscribes?note=person-left-imports", "/unsubscribes?note=person-unknown"]
    kept = pages.app.run(contents(pages.app.database, "import_rejects"))["import_rejects"]
    assert str(kept).count("ann@rejected.example") == 1


def test_others_organizations_stay_as_they_are(pages: Pages, partners: list[PagesPartner]) -> None:
    """An admin of one of them erases there alone, and sees nothing of the other."""
    first, second = partners
    browser = admin_of(pages, first)
    page = asked(browser)
    assert "1 record of 1 organization" in page.text
    assert second.slug not in page.text
    form = page.form("/unsubscribes/erase")
    assert browser.send(form, where=second.slug, word="erase", all_upgraded="yes").status == 404
    assert browser.send(form, where="", word="erase", all_upgraded="yes").status == 303
    assert (statuses(first), statuses(second)) == ([("unsubscribed", True)], [("unsubscribed", False)])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"address": "nobody", "channel": "email"}, "has no @"),
        ({"address": "ann@known.example", "channel": "pigeon"}, "Choose what the address is"),
        ({"address": "ann@known.example", "channel": "sms"}, "+"),
    ],
)
def test_what_is_no_address_is_refused_beside_its_field(pages: Pages, fields: dict[str, str], problem: str) -> None:
    browser = pages.signed_in("administrator")
    for path in ("/unsubscribes/erase", "/unsubscribes/person"):
        refused = browser.post(path, fields)
        assert (refused.status, problem in refused.text) == (422, True)
        assert refused.form(path)


def test_an_erased_person_is_told_what_is_stored(pages: Pages, partners: list[PagesPartner]) -> None:
    """By the address that they state: shown, and as a download, whose name does not hold it."""
    partner = partners[0]
    browser = admin_of(pages, partner)
    browser.send(asked(browser).form("/unsubscribes/erase"), word="erase", all_upgraded="yes")
    found = browser.post("/unsubscribes", {"address": "ann@known.example"})
    page = browser.send(found.form("/unsubscribes/person"))
    assert '"address_digest": "' in page.text
    fields = {"address": "ann@known.example", "channel": "email", "at": ""}
    download = browser.post("/unsubscribes/person/file", fields)
    assert "stoplist-person.json" in (download.header("content-disposition") or "")
    (record,) = json.loads(download.html)["records"]
    assert (record["org_slug"], [one["is_erasure"] for one in record["versions"]]) == (partner.slug, [True, False])
    erased = browser.get(record_of(browser, "ann@known.example") + "/person")
    assert (erased.status, "Data of a person" in erased.text) == (404, True)


@pytest.mark.parametrize(
    "read",
    [
        lambda browser, record: browser.post("/unsubscribes", {"address": "ann@known.example"}),
        lambda browser, record: browser.get(record),
        lambda browser, record: browser.get(f"{record}/person/file"),
        lambda browser, record: browser.post(
            "/unsubscribes/person/file", {"address": "ann@known.example", "channel": "email"}
        ),
    ],
    ids=["search", "record", "file of a record", "file of an address"],
)
def test_whoever_reads_a_persons_data_is_noted(
    pages: Pages, partners: list[PagesPartner], read: Callable[[Browser, str], PageResponse]
) -> None:
    """A search, an opened record and a download leave an entry in the audit, without the address."""
    reader = new_person(pages, roles={partners[0].slug: "viewer"})
    record = record_of(admin_of(pages, partners[0]), "ann@known.example")
    assert read(reader.browser, record).status == 200
    noted = [row for row in pages.app.run(audit_rows(pages.app.database)) if row.actor == f"person {reader.email}"]
    assert [row.action for row in noted].count(READ_ACTION) == 1
    assert "ann@known.example" not in str(noted)


def test_the_first_erasure_is_confirmed(pages: Pages, partners: list[PagesPartner]) -> None:
    pages.app.run(execute(pages.app.database, "UPDATE deployment SET first_erasure_ms = NULL"))
    browser = admin_of(pages, *partners)
    page = asked(browser)
    assert "First erasure" in page.text
    refused = browser.send(page.form("/unsubscribes/erase"), word="erase")
    assert (refused.status, "older process" in refused.text) == (422, True)
