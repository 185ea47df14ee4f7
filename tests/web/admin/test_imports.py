"""Imports on the pages: upload, preview, check, progress, result, discard, reversal. docs/interface.md section D12."""

import csv
import io
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stoplist.db.query import json_text
from stoplist.lists.imports.lifecycle import begin_import
from stoplist.lists.imports.listing import find_import
from stoplist.lists.imports.model import ImportCounts, ImportOptions
from stoplist.lists.uploads.model import CheckResult, WorkResult
from stoplist.organizations.target import find_target_of_person
from stoplist.staff.people import disable_person
from stoplist.staff.roles import set_role
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import OptOutStores
from stoplist.web.admin.imports.option_fields import MAX_COLUMN_CHOICES, column_choices
from stoplist.web.app import build_app
from stoplist.web.body import ClientGone, StreamedBody
from stoplist.web.request_context import SIGN_IN_PATH
from tests.builders import ADMINISTRATOR, contents, sql
from tests.deployment import in_own_loop
from tests.web.admin.creation import admin_of, new_person, organization
from tests.web.admin.opt_outs import clock_of, group_id, new_organization, record_of
from tests.web.admin.pages import Browser, PageResponse, Pages, read
from tests.web.admin.uploading import checked, form_body, form_to, here, imported, send, uploaded, work
from tests.web.application import Application

UPLOAD = "/unsubscribes/acme/email/import"
LIST = b"email,opted_out_at\nann@example.org,2020-01-01T10:00:00Z\nnobody,2020-01-01T10:00:00Z\n+44 20,\n"


async def submissions_of(pages: Pages, path: str) -> list[str]:
    """Return the ids of the parts of an import."""
    statement = sql("SELECT submission_id FROM import_parts WHERE import_id = :import_id ORDER BY first_row")
    rows = await pages.app.database.all(statement, import_id=path.rpartition("/")[2])
    return [row["submission_id"] for row in rows]


def previewed(browser: Browser, page: PageResponse, **choices: str) -> PageResponse:
    """Change how the file is read, and return the page with the preview."""
    return browser.follow(browser.send(form_to(page, "/options"), check=None, **choices))


def path_of(page: PageResponse) -> str:
    return next(link for link in page.links if link.startswith("/settings/imports/imp_")).rsplit("/", 1)[0]


def pieces(pages: Pages) -> int:
    return int(pages.app.value("SELECT COUNT(*) AS number FROM upload_pieces"))


def test_a_file_is_imported_and_taken_back(pages: Pages) -> None:
    """Each page says what comes next, from the upload to the reversal."""
    slug = organization(pages, default_group="Newsletter")
    browser = admin_of(pages, slug).browser
    assert f"/unsubscribes/{slug}/email/import" in browser.get(f"/unsubscribes/{slug}/email").links
    page = uploaded(browser, slug, LIST)
    assert "Address Column email" in page.text.replace("AddressColumn", "Address Column")
    assert "Left out The e-mail address has no @" in page.text
    path = here(page)
    waiting = browser.follow(browser.send(form_to(page, "/options"), check="yes"))
    assert "Checking the file" in waiting.text
    assert 'http-equiv="refresh"' in waiting.html
    work(pages)
    counted = browser.get(path)
    assert "New opt-outs1" in counted.text
    assert "Line 3: The e-mail address has no @" in counted.text
    assert "Import 1 opt-out An" in counted.text
    discard = form_to(browser.get(f"{path}/discard"), "/discard")
    running = browser.follow(browser.send(form_to(counted, "/start")))
    assert "Importing" in running.text
    work(pages)
    assert "nothing of it is left to discard" in browser.send(discard).text
    done = browser.get(path)
    assert "Done" in done.text
    assert 'http-equiv="refresh"' not in done.html
    assert pieces_of(pages, slug) == 0
    assert record_of(browser, "ann@example.org")
    rows = list(csv.reader(io.StringIO(browser.get(f"{path}/rejects").html, newline="")))
    assert [row[0] for row in rows] == ["line", "3", "4"]
    assert rows[0] == ["line", "error", "email", "opted_out_at"]
    # A number is written as it is, so that it can be imported again.
    assert rows[2][2:] == ["+44 20", ""]
    assert browser.get(f"{path}/reverse").status == 403

    boss = pages.signed_in("administrator")
    boss.follow(boss.send(form_to(boss.get(f"{path}/reverse"), "/count")))
    assert "Counting" in boss.get(f"{path}/reverse").text
    work(pages)
    counts = boss.get(f"{path}/reverse")
    assert "Reverse 1 record" in counts.text
    boss.follow(boss.send(form_to(counts, "/reverse")))
    work(pages)
    assert "What was taken back" in boss.get(f"{path}/reverse").text
    assert "The import was reversed" in browser.get(path).text
    assert path in browser.get(f"/settings/imports?organization={slug}").links
    listed = browser.get(f"/unsubscribes/submissions?organization={slug}")
    assert path in listed.links
    (part,) = pages.app.run(submissions_of(pages, path))
    assert f"/unsubscribes/{part}" not in listed.links
    assert path in browser.get(f"/unsubscribes/{part}").links


@pytest.mark.parametrize(("caller", "status"), [("viewer", 403), ("other", 404), ("stranger", 303)])
def test_others_are_refused_before_the_file_is_read(pages: Pages, caller: str, status: int) -> None:
    browser = pages.stranger() if caller == "stranger" else pages.signed_in(caller)
    assert_unread(browser, status)


def test_another_site_is_refused_before_the_file_is_read(pages: Pages) -> None:
    assert_unread(pages.signed_in("admin"), 403, site="cross-site")


def test_a_file_that_announces_its_size_is_refused_unread(pages: Pages) -> None:
    """The page of the form is the answer, and says what to do instead."""
    answer = assert_unread(pages.signed_in("admin"), 413, ("content-length", "202000000"))
    assert "larger than 200 MB" in answer
    assert "gzip" in answer


def assert_unread(browser: Browser, status: int, *headers: tuple[str, str], site: str = "same-origin") -> str:
    """Assert that an upload is refused although its body never arrives."""

    async def never() -> None:
        raise AssertionError("the body was read")

    answer = send(browser, UPLOAD, form_body({}, b"x"), *headers, site=site, meanwhile=never)
    assert answer.status == status, answer.body
    return answer.body.decode()


def test_a_file_without_announced_size_is_bounded(pages: Pages) -> None:
    """Nothing is left of it, not even in the list."""
    app = pages.app
    browser = pages.with_app(application(pages, import_max_mb=1)).signed_in("admin")
    before = pieces(pages)
    answer = send(browser, UPLOAD, form_body({"source": "A note"}, b"a" * 1_000_001))
    assert answer.status == 413
    page = read(answer)
    assert "larger than 1 MB" in page.text
    assert dict(form_to(page, "/import").values)["source"] == "A note"
    assert pieces(pages) == before
    assert app.value("SELECT COUNT(*) AS number FROM uploads WHERE state = 'uploading'") == 0


@pytest.mark.parametrize("file", [b"", None])
def test_a_file_is_required(pages: Pages, file: bytes | None) -> None:
    browser = pages.signed_in("admin")
    body = form_body({}, file or b"", name="list.csv" if file is not None else "")
    answer = send(browser, UPLOAD, body)
    assert answer.status == 422
    assert "Choose a file" in answer.body.decode()


@pytest.mark.parametrize("error", [TimeoutError("The body did not arrive within 60 seconds."), ClientGone()])
def test_nothing_is_left_of_a_file_that_was_cut_off(pages: Pages, error: Exception) -> None:
    async def cut_off() -> None:
        raise error

    before = pieces(pages)
    answer = send(pages.signed_in("admin"), UPLOAD, form_body({}, b"a" * 600_000), meanwhile=cut_off)
    assert answer.status in (0, 400)
    assert pieces(pages) == before
    assert pages.app.value("SELECT COUNT(*) AS number FROM uploads WHERE state = 'uploading'") == 0


@in_own_loop
async def test_a_client_that_leaves_ends_the_body() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send_nothing(message: Any) -> None:
        raise AssertionError(message)

    with pytest.raises(ClientGone):
        async for _ in StreamedBody([], receive, send_nothing).chunks():
            pass


def test_rights_are_read_again_after_the_file(pages: Pages) -> None:
    """It may take an hour to arrive."""
    slug = organization(pages)
    path = f"/unsubscribes/{slug}/email/import"
    person, app = admin_of(pages, slug), pages.app

    async def demoted() -> None:
        await set_role(ADMINISTRATOR, app.database, app.clock, email=person.email, org_slug=slug, role="viewer")

    async def disabled() -> None:
        await disable_person(ADMINISTRATOR, app.database, app.clock, email=person.email)

    assert send(person.browser, path, form_body({}, LIST), meanwhile=demoted).status == 403
    assert send(admin_of(pages, slug).browser, path, form_body({}, LIST)).status == 303
    person = admin_of(pages, slug)
    ended = read(send(person.browser, path, form_body({}, LIST), meanwhile=disabled))
    assert (ended.status, ended.location) == (303, SIGN_IN_PATH)
    assert pieces_of(pages, slug) == 1


def test_a_wrong_choice_does_not_cost_the_upload(pages: Pages) -> None:
    """The page of the file shows what is wrong, beside its field."""
    slug = organization(pages, default_group="Newsletter")
    browser = admin_of(pages, slug).browser
    page = uploaded(browser, slug, LIST, target="grp_0000000000000000000000", reason="stop_keyword")
    values = dict(form_to(page, "/options").values)
    assert (values["target"], values["reason"]) == ("", "stop_keyword")
    refused = browser.send(form_to(page, "/options"), check="yes")
    assert refused.status == 422
    assert "Choose which messages" in refused.text
    page = previewed(browser, page, target="all", as_of="2047-02-30")
    assert "The day cannot be read" in page.html.partition('id="as_of-problem"')[2]
    page = previewed(browser, page, as_of="2047-01-01", time_zone="Mars")
    assert "The time zone is not known" in page.html.partition('id="time_zone-problem"')[2]


def test_columns_are_chosen_on_the_page(pages: Pages) -> None:
    """Several may have the same name, and the file may have only one."""
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    page = uploaded(browser, slug, b"Kontakt,Wert,Wert\nann@example.org,1,2\n", as_of="2020-01-01")
    assert "No column has a usual name for addresses" in page.html.partition('id="column_address-problem"')[2]
    page = previewed(browser, page, column_address="Kontakt", column_source="3")
    assert page.text.count("ann@example.org") == 2
    assert "SourceColumn Wert" in page.text
    page = uploaded(browser, slug, b"Kontakt\nann@example.org\n", as_of="2020-01-01")
    page = previewed(browser, page, column_address="Kontakt")
    assert page.text.count("ann@example.org") == 2


def test_rows_are_chosen_by_their_status(pages: Pages) -> None:
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    file = b"email,status\nann@example.org,out\nben@example.org,in\ncyn@example.org,gone\n"
    page = uploaded(browser, slug, file, as_of="2020-01-01")
    assert "say which of its values mean that" in page.html.partition('id="opted_out_column-problem"')[2]
    choices = {"opted_out_column": "status", "opted_out_values": "out\ngone"}
    page = previewed(browser, page, **choices)
    assert "1 of them is not an opt-out" in page.text
    assert "New opt-outs2" in checked(pages, browser, page, **choices).text


def test_a_strict_import_does_not_begin_with_bad_rows(pages: Pages) -> None:
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    page = checked(pages, browser, uploaded(browser, slug, LIST, strict="yes"))
    assert "you chose to import nothing then" in page.text
    assert not [form for form in page.forms if form.action.endswith("/start")]
    refused = browser.post(f"{here(page)}/start", {"checked": str(pages.app.clock.now_ms())})
    assert (refused.status, "you chose to import it only if it has none" in refused.text) == (422, True)


def test_only_the_counts_that_were_shown_are_started(pages: Pages) -> None:
    """Somebody else may have changed the choices meanwhile."""
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    page = checked(pages, browser, uploaded(browser, slug, LIST))
    clock_of(pages).advance(1)
    checked(pages, admin_of(pages, slug).browser, page, reason="bounce")
    refused = browser.send(form_to(page, "/start"))
    assert (refused.status, "checked again" in refused.text) == (422, True)


def test_a_file_is_not_imported_twice_unknowingly(pages: Pages) -> None:
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    first = imported(pages, browser, slug, LIST)
    second = checked(pages, browser, uploaded(browser, slug, LIST))
    assert "The same file was imported already" in second.text
    assert path_of(first) in second.links


def test_a_stopped_import_goes_on_or_is_discarded(pages: Pages) -> None:
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    page = checked(pages, browser, uploaded(browser, slug, LIST))
    path = here(page)
    running = browser.follow(browser.send(form_to(page, "/start")))
    stopped = browser.follow(browser.send(form_to(running, "/stop")))
    assert "Stopped after 0 rows" in stopped.text
    assert browser.send(form_to(running, "/stop")).status == 422
    assert "Starting again" in browser.follow(browser.send(form_to(stopped, "/resume"))).text
    discarded = browser.follow(browser.send(form_to(browser.get(f"{path}/discard"), "/discard")))
    assert "What was not stored yet was discarded" in discarded.text
    work(pages)
    assert "Discarded" in browser.get(path).text
    assert pieces_of(pages, slug) == 0


def test_a_discarded_file_is_gone(pages: Pages) -> None:
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    path = here(uploaded(browser, slug, LIST))
    gone = browser.follow(browser.send(form_to(browser.get(f"{path}/discard"), "/discard")))
    assert "Nothing of it was imported" in gone.text
    assert browser.get(path).status == 404
    assert pieces_of(pages, slug) == 0


def test_an_address_in_the_first_row_is_not_kept_as_a_column(pages: Pages) -> None:
    """An erasure does not look there, once the file was discarded."""
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    page = previewed(browser, uploaded(browser, slug, b"kim@row.example,2024-02-29\n"), as_of="2024-03-01")
    assert "The first row looks like an address" in page.text
    browser.follow(browser.send(form_to(browser.get(f"{here(page)}/discard"), "/discard")))
    assert "kim@row.example" not in str(pages.app.run(contents(pages.app.database, "uploads")))


def test_the_first_columns_of_a_wide_file_can_be_chosen() -> None:
    """A column beyond them counts where names must tell columns apart."""
    choices = column_choices([*(f"column {number}" for number in range(MAX_COLUMN_CHOICES)), "COLUMN 1"])
    assert len(choices) == 1 + MAX_COLUMN_CHOICES
    assert choices[1:3] == [("column 0", "column 0"), ("2", "Column 2: column 1")]


def test_viewers_see_counts_and_no_rows(pages: Pages) -> None:
    """They get neither a file that waits nor the rejected rows."""
    slug = organization(pages)
    admin, viewer = admin_of(pages, slug).browser, new_person(pages, roles={slug: "viewer"}).browser
    waiting = here(uploaded(admin, slug, LIST))
    assert viewer.get(waiting).status == 403
    assert waiting not in viewer.get("/settings/imports").links
    done = path_of(imported(pages, admin, slug, LIST))
    shown = viewer.get(done)
    assert "Rows3" in shown.text
    assert not [link for link in shown.links if link.endswith(("/rejects", "/discard", "/reverse"))]
    assert viewer.get(f"{done}/rejects").status == 403
    assert viewer.get("/settings/imports/new").status == 403
    assert done in viewer.get("/settings/imports").links
    assert pages.signed_in("other").get(done).status == 404


def test_an_import_by_command_has_a_page(pages: Pages) -> None:
    """Its file is not here, so the page names the command."""
    slug = organization(pages)
    app = pages.app
    stores = OptOutStores(database=app.database, clock=app.clock, secret_keys=())

    async def begin() -> str:
        target = await find_target_of_person(ADMINISTRATOR, app.database, org_slug=slug, group_id=None)
        options = ImportOptions(now_ms=app.clock.now_ms())
        begun = await begin_import(
            ADMINISTRATOR, stores, CHANNELS["sms"], target, all_groups=True, file_name="x.csv", options=options
        )
        return begun.import_id

    path = f"/settings/imports/{app.run(begin())}"
    browser = admin_of(pages, slug).browser
    shown = browser.get(path)
    assert "stoplist import resume" in shown.text
    assert browser.post(f"{path}/start").status == 422
    discarded = browser.follow(browser.send(form_to(browser.get(f"{path}/discard"), "/discard")))
    assert "Discarded" in discarded.text


def test_a_lost_right_ends_the_import_and_is_said(pages: Pages) -> None:
    slug = organization(pages)
    person, app = admin_of(pages, slug), pages.app
    page = checked(pages, person.browser, uploaded(person.browser, slug, LIST))
    path = here(page)
    person.browser.send(form_to(page, "/start"))
    pages.administer(set_role, email=person.email, org_slug=slug, role="viewer")
    work(pages)
    browser = admin_of(pages, slug).browser
    stopped = browser.get(path)
    assert "no longer has the right" in stopped.text
    browser.follow(browser.send(form_to(stopped, "/resume")))
    work(pages)
    found = app.run(find_import(ADMINISTRATOR, app.database, path.rpartition("/")[2]))
    assert (found.state, found.counts.created) == ("done", 1)


def test_the_page_says_that_bad_rows_were_not_kept(pages: Pages) -> None:
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    path = path_of(imported(pages, browser, slug, LIST))
    assert "too many bad rows" not in browser.get(path).text
    statement = sql("UPDATE imports SET rejects_bytes = -1 WHERE import_id = :import_id")
    import_id = path.rpartition("/")[2]
    pages.app.run(pages.app.database.write(lambda transaction: transaction.run(statement, import_id=import_id)))
    assert "too many bad rows" in browser.get(path).text


def test_the_page_says_which_counts_are_bounds(pages: Pages) -> None:
    """The counts are those of the command line, with the earlier versions of an own export that are left out."""
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    path = here(checked(pages, browser, uploaded(browser, slug, LIST)))
    counts = ImportCounts(rows=9, repeated=2, created=3, unchanged=4, earlier_versions=2)
    result = WorkResult(check=CheckResult(counts=counts, is_exact=False, sha256=""))
    values = {"result": json_text(msgspec.to_builtins(result)), "import_id": path.rpartition("/")[2]}
    statement = sql("UPDATE import_work SET result = :result WHERE import_id = :import_id")
    pages.app.run(pages.app.database.write(lambda transaction: transaction.run(statement, **values)))
    shown = browser.get(path).text
    for text in (
        "New opt-outsat least 3",
        "Unchangedat most 4",
        "Repeated within the fileat most 2",
        "Left out: an earlier version of a record2",
        "Import 7 opt-outs",
    ):
        assert text in shown


def test_organization_and_channel_are_chosen_first(pages: Pages) -> None:
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    form = browser.get("/settings/imports/new").form("/settings/imports/new")
    assert dict(form.values) == {"organization": slug, "channel": "email"}
    assert browser.send(form, channel="sms").location == f"/unsubscribes/{slug}/sms/import"
    assert browser.send(form, organization="acme").status == 422
    assert browser.send(form, channel="fax").status == 422


def test_a_number_in_the_file_may_have_a_group(pages: Pages) -> None:
    partner = new_organization(pages)
    browser = admin_of(pages, partner.slug).browser
    newsletter = group_id(pages, "Newsletter", partner.slug)
    page = uploaded(browser, partner.slug, b"+442079460018\n", channel="sms", target=newsletter, as_of="2020-01-01")
    page = checked(pages, browser, page)
    browser.follow(browser.send(form_to(page, "/start")))
    work(pages)
    assert "Newsletter" in browser.get(here(page)).text


def pieces_of(pages: Pages, slug: str) -> int:
    """Return the number of stored pieces of the files of an organization."""
    statement = """SELECT COUNT(*) AS number FROM upload_pieces p JOIN feeds f ON f.feed_id = p.feed_id
        JOIN organizations o ON o.organization_id = f.organization_id WHERE o.slug = :slug"""
    return int(pages.app.value(statement, slug=slug))


def application(pages: Pages, **settings: Any) -> Application:
    """Return an application with other settings on the same database."""
    app = Application(pages.app.run, pages.app.database, clock_of(pages))
    app._app = build_app(replace(app.parts, **settings), trusted_proxies=()).asgi
    return app
