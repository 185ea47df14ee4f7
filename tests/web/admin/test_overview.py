"""The overview: charts with their data, keys that need attention, stores, and empty states.

docs/interface.md section D11.
"""

import re
from collections.abc import Iterator

import pytest

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.limits.limiter import Limiter
from stoplist.limits.opening import open_limiter
from stoplist.oauth.credentials import create_credential
from stoplist.organizations.organizations import create_organization
from stoplist.web.app import Parts, build_app
from tests.builders import execute, in_a_loop, migrated
from tests.fakes import FakeClock
from tests.limits.counting import patience
from tests.services.valkey import Valkey
from tests.web.admin.creation import new_name, new_person
from tests.web.admin.opt_outs import DAY_S, Partner, clock_of, new_organization
from tests.web.admin.pages import ROLES, Browser, PageResponse, Pages
from tests.web.application import BASE_URL, Application


@pytest.fixture
def empty(database_url: str, clock: FakeClock) -> Iterator[Pages]:
    """A deployment without organizations and people."""
    with in_a_loop(migrated(database_url)) as (run, database):
        yield Pages(Application(run, database, clock))


def chart_data(shown: PageResponse, caption: str) -> list[list[str]]:
    """Return the table of a chart, with its head, as text."""
    table = shown.html.partition(f'aria-label="{caption}: data"')[2].partition("</table>")[0]
    assert table, f"no data of {caption}"
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("<tr>")[1:]]
    return [[cell.strip() for cell in row] for row in rows]


def tiles(shown: PageResponse) -> dict[str, tuple[str, str]]:
    """Return the current totals by channel: suppressed, and resubscribed."""
    line = r'<div class="tile">\s*<dt>(?:<a [^>]*>)?(.*?)(?:</a>)?</dt>\s*<dd>(.*?)</dd>\s*<dd class="beside">(.*?) '
    found = re.findall(line, shown.html)
    return {channel: (suppressed, resubscribed) for channel, suppressed, resubscribed in found}


def overview_of(browser: Browser, slug: str) -> PageResponse:
    """Choose an organization in the form and return its overview."""
    return browser.send(browser.get("/").form("/"), organization=slug)


PER_DAY, REASONS = "Opt-outs per day, last 30 days", "Opt-outs in the last 30 days"


def test_the_overview_of_one_organization(pages: Pages) -> None:
    """Opt-outs per day and channel, current totals, and reasons."""
    partner = new_organization(pages)
    partner.submit("a@example.com", {"address": "b@example.com", "reason": "complaint"}, "c@example.com")
    partner.submit("+14155550123", channel="sms")
    clock_of(pages).advance(60)
    partner.resubscribe("c@example.com")
    shown = overview_of(pages.signed_in("administrator"), partner.slug)
    assert partner.slug.title() in shown.title
    assert tiles(shown) == {"E-mail": ("2", "1"), "SMS": ("1", "0"), "Phone": ("0", "0")}
    head, today, *earlier = chart_data(shown, PER_DAY)
    assert head == ["Day", "E-mail", "SMS", "Phone"]
    assert today == ["2047-01-15", "3", "1", "0"]
    assert len(earlier) == 29
    assert {tuple(day[1:]) for day in earlier} == {("0", "0", "0")}
    assert chart_data(shown, REASONS) == [
        ["Reason", "Opt-outs", "Share"],
        ["Unsubscribe", "3", "75.0 %"],
        ["Complaint", "1", "25.0 %"],
    ]


def test_a_chart_has_a_text_alternative(pages: Pages) -> None:
    """For screen readers, and as the tooltip of each day."""
    partner = new_organization(pages)
    partner.submit(*(f"p{number}@example.com" for number in range(7)))
    shown = overview_of(pages.signed_in("administrator"), partner.slug)
    assert f'aria-label="{PER_DAY}: 7 in 30 days, at most 7 per day. A table with the data follows."' in shown.html
    assert "<title>2047-01-15: 7 E-mail, 0 SMS, 0 Phone</title>" in shown.html


def test_small_counts_are_visible_and_bars_fit_the_chart(pages: Pages) -> None:
    """A single opt-out is visible beside a day with very many; days without one have no bar."""
    partner = new_organization(pages)
    partner.submit("first@example.com")
    clock_of(pages).advance(DAY_S / 24 * 23)
    partner = Partner(pages, partner.slug)
    partner.submit(*(f"p{number}@example.com" for number in range(2_500)))
    browser = new_person(pages, is_administrator=True).browser
    shown = overview_of(browser, partner.slug)
    bars = re.findall(
        r'<rect class="series-1" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', shown.html
    )
    chart = bars[: len(bars) - 1]  # the last one belongs to the reasons
    assert len(chart) == 2
    for x, y, width, height in (map(float, bar) for bar in chart):
        assert height >= 1
        assert y >= 0
        assert x + width <= 1  # of its day
        assert y + height == pytest.approx(106, abs=0.2)


def test_a_month_without_opt_outs_says_so(pages: Pages) -> None:
    partner = new_organization(pages)
    partner.submit("a@example.com")
    clock_of(pages).advance(31 * DAY_S)
    shown = overview_of(new_person(pages, is_administrator=True).browser, partner.slug)
    assert tiles(shown)["E-mail"] == ("1", "0")
    assert "Nobody opted out in the last 30 days" in shown.text
    assert '<rect class="series' not in shown.html


@pytest.mark.parametrize("role", ["admin", "viewer"])
def test_totals_cover_visible_organizations_only(pages: Pages, role: str) -> None:
    """The overview of another organization is not found."""
    one, two, hidden = (new_organization(pages) for _ in range(3))
    one.submit("a@example.com")
    two.submit("a@example.com", "b@example.com")
    hidden.submit(*(f"p{number}@example.com" for number in range(9)))
    browser = new_person(pages, roles={one.slug: role, two.slug: role}).browser  # type: ignore[dict-item]
    assert tiles(browser.get("/"))["E-mail"] == ("3", "0")
    assert tiles(overview_of(browser, two.slug))["E-mail"] == ("2", "0")
    assert [name for name, _ in browser.get("/").form("/").values] == ["organization"]
    assert hidden.slug not in browser.get("/").html
    for slug in (hidden.slug, "none-such", "x" * 1_000, "<script>"):
        assert browser.get(f"/?organization={slug}").status == 404


def test_one_organization_needs_no_filter(pages: Pages) -> None:
    partner = new_organization(pages)
    partner.submit("a@example.com")
    shown = new_person(pages, roles={partner.slug: "viewer"}).browser.get("/")
    assert tiles(shown)["E-mail"] == ("1", "0")
    assert [form.action for form in shown.forms] == ["/settings/sign-out"]


def test_refused_keys_are_listed_with_counts(pages: Pages) -> None:
    """Immediately, before the usage of the minute is written."""
    partner = new_organization(pages)
    partner.submit("a@example.com")
    browser = new_person(pages, roles={partner.slug: "viewer"}).browser
    assert "No key was rate limited" in browser.get("/").text
    wrong = {"client_id": partner.key.client_id, "client_secret": "svc_cs_wrong", "grant_type": "client_credentials"}
    refused = [pages.app.ask_token(wrong).status for _ in range(12)]
    shown = browser.get("/")
    limits, failures = refused.count(429), refused.count(401)
    assert limits
    assert f"Rate limited: {limits}. Failed authentications: {failures}." in shown.text
    assert f"/settings/keys/{partner.key.client_id}" in shown.links
    assert "Alarm" not in shown.text


def test_an_alarm_is_shown_for_a_week(pages: Pages) -> None:
    partner = new_organization(pages)
    partner.submit("a@example.com")

    async def alarm(transaction: Transaction) -> None:
        key = Actor(kind="client", id=partner.key.client_id)
        await trail.record(transaction, key, "client.reuse_alarm", key.id, at_ms=pages.app.clock.now_ms())

    pages.app.run(pages.app.database.write(alarm))
    shown = new_person(pages, roles={partner.slug: "viewer"}).browser.get("/")
    assert re.search(r"Nightly import Alarm A refresh token was used twice, 2047-01-15.08:00.UTC", shown.text)
    clock_of(pages).advance(7 * DAY_S)
    shown = new_person(pages, roles={partner.slug: "viewer"}).browser.get("/")
    assert "Alarm" not in shown.text


@pytest.mark.parametrize("role", [*ROLES])
def test_only_administrators_see_the_stores(pages: Pages, role: str) -> None:
    Partner(pages, "acme").submit("a@example.com")
    Partner(pages, "bolt").submit("a@example.com")
    shown = pages.signed_in(role).get("/")
    assert shown.status == 200
    assert ("Rate limit store" in shown.text) == (role == "administrator")
    if role == "administrator":
        kind = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[pages.app.database.kind]
        assert re.search(rf"Database (OK|Slow) {kind}, [\d.]+ ms", shown.text)
        assert "Rate limit store In this process" in shown.text


def with_limiter(pages: Pages, limiter: Limiter) -> Browser:
    """Return the browser of an administrator, with an application that uses this limiter."""
    Partner(pages, "acme").submit("a@example.com")
    browser = new_person(pages, is_administrator=True).browser
    app = pages.app
    parts = Parts(
        database=app.database,
        clock=app.clock,
        limiter=limiter,
        usage=app.usage,
        metrics=app.metrics,
        readiness=app.readiness,
        secret_keys=("k" * 32,),
        base_url=BASE_URL,
    )
    app._app = build_app(parts, trusted_proxies=())
    return browser


def test_a_working_limit_store_is_shown(pages: Pages, valkey: Valkey) -> None:
    with patience():
        limiter = pages.app.run(open_limiter(valkey.url, pages.app.clock))
    try:
        assert "Rate limit store OK Shared by all processes." in with_limiter(pages, limiter).get("/").text
    finally:
        pages.app.run(limiter.close())


def test_an_unreachable_limit_store_is_explained(pages: Pages) -> None:
    """With the number of requests that were counted locally."""
    limiter = pages.app.run(open_limiter("redis://127.0.0.1:1/0", pages.app.clock))
    try:
        browser = with_limiter(pages, limiter)
        for _ in range(3):
            pages.app.run(limiter.api("svc_ci_x", limit=60))
        shown = browser.get("/")
        assert "Unreachable Each process counts requests on its own" in shown.text
        assert "Requests counted this way: 3." in shown.text
    finally:
        pages.app.run(limiter.close())


def test_an_empty_deployment_names_the_next_step(empty: Pages) -> None:
    """First an organization, then a key, then the first opt-out."""
    browser = new_person(empty, is_administrator=True).browser
    shown = browser.get("/")
    assert "/organizations/_new" in shown.links
    assert browser.get("/organizations/_new").status == 200
    empty.administer(create_organization, slug="acme", name="Acme", default_group="Newsletter")
    shown = browser.get("/")
    assert "No opt-outs and no API keys yet" in shown.text
    assert "/settings/keys/new" in shown.links
    viewer = new_person(empty, roles={"acme": "viewer"}).browser.get("/")
    assert "/settings/keys/new" not in viewer.links
    assert "An admin of your organization can create one" in viewer.text
    empty.administer(create_credential, label="Nightly", organizations=["acme"])
    shown = browser.get("/")
    assert "/settings/keys/new" not in shown.links
    assert "/settings/keys" in shown.links
    assert "/unsubscribes" in shown.links
    Partner(empty, "acme").submit("a@example.com")
    assert tiles(browser.get("/"))["E-mail"] == ("1", "0")


def test_a_person_without_a_role_is_told_whom_to_ask(pages: Pages) -> None:
    shown = pages.signed_in("nobody").get("/")
    assert "You have no role in any organization" in shown.text
    assert "/organizations/_new" not in shown.links


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "Zoë & 例", "{{ 7 * 7 }}"])
def test_names_are_escaped(pages: Pages, name: str) -> None:
    """In the title, the heading and the select."""
    partner = new_organization(pages, new_name(), name)
    partner.submit("a@example.com")
    shown = overview_of(pages.signed_in("administrator"), partner.slug)
    assert shown.title.startswith(f"Overview: {name} · Stoplist")
    assert f"Overview: {name} Organization" in shown.text
    assert "<script>alert" not in shown.html


def test_the_overview_reads_no_records(empty: Pages) -> None:
    """Only daily counts, so that its cost does not grow: it works even without the tables of records."""
    empty.administer(create_organization, slug="acme", name="Acme", default_group="Newsletter")
    Partner(empty, "acme").submit("a@example.com", "b@example.com")
    browser = new_person(empty, is_administrator=True).browser
    for table in ("unsubscribes", "unsubscribe_versions", "submissions"):
        empty.app.run(execute(empty.app.database, f"DROP TABLE {table}"))
    for path in ("/", "/?organization=acme"):
        shown = browser.get(path)
        assert shown.status == 200
        assert tiles(shown)["E-mail"] == ("2", "0")
