"""The overview: charts with their data, keys that need attention, stores, and empty states.

docs/interface.md section D11.
"""

import re
from collections.abc import Iterator

import pytest

from stoplist.actor import ADMIN, VIEWER, Actor
from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.limits.limiter import Limiter
from stoplist.limits.opening import open_limiter
from stoplist.oauth.credentials import activate_credential, create_credential, deactivate_credential
from stoplist.organizations.organizations import close_organization, create_organization
from stoplist.web.app import build_app
from stoplist.web.parts import Parts
from tests.builders import execute, in_a_loop, migrated
from tests.constants import DAY_S
from tests.fakes import FakeClock
from tests.limits.counting import patience
from tests.services.valkey import Valkey
from tests.web.admin.creation import new_name, new_person
from tests.web.admin.opt_outs import PagesPartner, clock_of, new_organization
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
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("<tr ")[1:]]
    return [[cell.strip() for cell in row] for row in rows]


def tiles(shown: PageResponse) -> dict[str, tuple[str, str]]:
    """Return the current totals by channel: suppressed, and resubscribed."""
    line = r'<div class="tile">\s*<dt>(?:<a [^>]*>)?(.*?)(?:</a>)?</dt>\s*<dd>(.*?)</dd>\s*<dd class="beside">(.*?) '
    found = re.findall(line, shown.html)
    return {channel: (suppressed, resubscribed) for channel, suppressed, resubscribed in found}


def overview_of(browser: Browser, slug: str) -> PageResponse:
    """Choose an organization in the form and return its overview."""
    return browser.submit_form("/", organization=slug)


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
    assert head == ["Day", "E-mail", "SMS", "Phone", "30 days before"]
    assert today == ["2047-01-15", "3", "1", "0", "0"]
    assert len(earlier) == 29
    assert {tuple(day[1:]) for day in earlier} == {("0", "0", "0", "0")}
    assert chart_data(shown, REASONS) == [
        ["Reason", "Opt-outs", "Share", "30 days before"],
        ["Unsubscribe", "3", "75.0 %", "0"],
        ["Complaint", "1", "25.0 %", "0"],
    ]


def test_a_chart_has_a_text_alternative(pages: Pages) -> None:
    """Screen readers get it, and it is the name of each day's radio button, shown while that has the focus."""
    partner = new_organization(pages)
    partner.submit(*(f"p{number}@example.com" for number in range(7)))
    shown = overview_of(pages.signed_in("administrator"), partner.slug)
    assert f'aria-label="{PER_DAY}: 7 in 30 days, at most 7 per day. 30 days before: 0. A table' in shown.html
    assert "2047-01-15: 7 E-mail, 0 SMS, 0 Phone. 30 days before: 0." in shown.text
    assert shown.html.count('type="radio"') == 30


def test_a_period_is_compared_with_the_one_before(pages: Pages) -> None:
    """Opt-outs of 30 days, 90 days or 52 weeks, each beside as many days earlier; other periods do not exist."""
    partner = new_organization(pages)
    partner.submit("a@example.com", {"address": "b@example.com", "reason": "complaint"}, "c@example.com")
    clock_of(pages).advance(40 * DAY_S)
    partner = PagesPartner(pages, partner.slug)
    partner.submit("d@example.com", {"address": "e@example.com", "reason": "bounce"})
    browser = new_person(pages, is_administrator=True).browser
    shown = overview_of(browser, partner.slug)
    assert "Total: 2. 30 days before: 3 (\N{MINUS SIGN}33 %)." in shown.text
    before = {row[0]: row[-1] for row in chart_data(shown, PER_DAY)[1:] if row[-1] != "0"}
    assert before == {"2047-02-14": "3"}
    assert [row[0:2] + row[3:] for row in chart_data(shown, REASONS)[1:]] == [
        ["Unsubscribe", "1", "2"],
        ["Bounce", "1", "0"],
        ["Complaint", "0", "1"],
    ]
    assert '<path class="before"' in shown.html
    quarter = browser.get(f"/?organization={partner.slug}&days=90")
    assert "Total: 5. 90 days before: 0." in quarter.text
    assert '<path class="before"' not in quarter.html
    assert dict(quarter.form("/").values) == {"organization": partner.slug, "days": "90"}
    year = chart_data(browser.get(f"/?organization={partner.slug}&days=364"), "Opt-outs per week, last 52 weeks")
    assert (len(year), year[0][0], year[1][:2]) == (53, "Week", ["2047-02-18 to 2047-02-24", "2"])
    assert sum(int(row[1]) for row in year[1:]) == 5
    assert {f"/?organization={partner.slug}&days={days}" for days in (30, 90, 364)} <= set(shown.links)
    for days in ("", "7", "-1", "x", "9" * 50):
        assert browser.get(f"/?days={days}").status == 404


def test_small_counts_are_visible_and_bars_fit_the_chart(pages: Pages) -> None:
    """A single opt-out is visible beside a day with very many; days without one have no bar."""
    partner = new_organization(pages)
    partner.submit("first@example.com")
    clock_of(pages).advance(DAY_S / 24 * 23)
    partner = PagesPartner(pages, partner.slug)
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
        assert x % 1 + width <= 1  # of its day
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
    PagesPartner(pages, "acme").submit("a@example.com")
    PagesPartner(pages, "bolt").submit("a@example.com")
    shown = pages.signed_in(role).get("/")
    assert shown.status == 200
    assert ("Rate limit store" in shown.text) == (role == "administrator")
    assert ("Rate limit store In this process" in shown.text) == (role == "administrator")


def test_the_kind_of_the_database_is_named(empty: Pages) -> None:
    empty.administer(create_organization, slug="acme", name="Acme", default_group="Newsletter")
    PagesPartner(empty, "acme").submit("a@example.com")
    shown = new_person(empty, is_administrator=True).browser.get("/")
    kind = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[empty.app.database.kind]
    assert re.search(rf"Database (OK|Slow) {kind}, [\d.]+ ms", shown.text)


def with_limiter(pages: Pages, limiter: Limiter) -> Browser:
    """Return the browser of an administrator, with an application that uses this limiter."""
    PagesPartner(pages, "acme").submit("a@example.com")
    browser = new_person(pages, is_administrator=True).browser
    app = pages.app
    parts = Parts(
        database=app.database,
        clock=app.clock,
        limiter=limiter,
        usage=app.usage,
        metrics=app.metrics,
        readiness=app.readiness,
        held=app.held,
        secret_keys=("k" * 32,),
        base_url=BASE_URL,
    )
    app._app = build_app(parts, trusted_proxies=()).asgi
    return browser


def test_a_working_limit_store_is_shown(pages: Pages, valkey: Valkey) -> None:
    with patience():
        limiter = pages.app.run(open_limiter(valkey.url, pages.app.clock))
    try:
        assert "Rate limit store OK Shared by all processes." in with_limiter(pages, limiter).get("/").text
    finally:
        pages.app.run(limiter.close())


def test_an_unreachable_limit_store_is_explained(pages: Pages) -> None:
    """The page has the number of requests that were counted locally."""
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
    PagesPartner(empty, "acme").submit("a@example.com")
    assert tiles(browser.get("/"))["E-mail"] == ("1", "0")


def test_a_viewer_is_told_nothing_that_a_viewer_may_not_do(empty: Pages) -> None:
    """The page before the first opt-out offers neither to add one, nor to create or activate a key."""
    empty.administer(create_organization, slug="acme", name="Acme", default_group="Newsletter")
    empty.administer(create_credential, label="Nightly", organizations=["acme"])
    viewer, admin = (new_person(empty, roles={"acme": role}).browser for role in (VIEWER, ADMIN))
    for path in ("/", "/unsubscribes/acme/email"):
        assert "Opt-outs can also be added manually" in admin.get(path).text
        shown = viewer.get(path)
        assert "an admin of" in shown.text.lower()
        assert "Opt-outs can also be added manually" not in shown.text
        assert not [link for link in shown.links if link.endswith(("/add", "/new"))]


def test_an_inactive_key_is_none_to_begin_with(empty: Pages) -> None:
    """Nor is one of a closed organization; who may is told to activate one."""
    for slug in ("acme", "bolt"):
        empty.administer(create_organization, slug=slug, name=slug, default_group="Newsletter")
    key = empty.administer(create_credential, label="Nightly", organizations=["acme"]).credential
    empty.administer(deactivate_credential, client_id=key.client_id)
    empty.administer(create_credential, label="Closed", organizations=["bolt"])
    empty.administer(close_organization, slug="bolt")
    viewer, admin = (new_person(empty, roles={"acme": role, "bolt": role}).browser for role in (VIEWER, ADMIN))
    shown = admin.get("/")
    assert "No opt-outs yet, and no API key works" in shown.text
    assert "Activate one, or create another." in shown.text
    assert "/settings/keys/new" in shown.links
    shown = viewer.get("/")
    assert "An admin of your organization can activate one" in shown.text
    assert "/settings/keys/new" not in shown.links
    empty.administer(activate_credential, client_id=key.client_id)
    assert "There is an API key." in admin.get("/").text


def test_a_person_without_a_role_is_told_whom_to_ask(pages: Pages) -> None:
    shown = pages.signed_in("nobody").get("/")
    assert "You have no role in any organization" in shown.text
    assert "/organizations/_new" not in shown.links


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "Zoë & 例", "{{ 7 * 7 }}"])
def test_names_are_escaped(pages: Pages, name: str) -> None:
    """This holds for the title, the heading and the select."""
    partner = new_organization(pages, new_name(), name)
    partner.submit("a@example.com")
    shown = overview_of(pages.signed_in("administrator"), partner.slug)
    assert shown.title.startswith(f"Overview: {name} · Stoplist")
    assert f"Overview: {name} Organization" in shown.text
    assert "<script>alert" not in shown.html


def test_the_overview_reads_no_records(empty: Pages) -> None:
    """It reads daily counts, so that its cost does not grow: it works even without the tables of records."""
    empty.administer(create_organization, slug="acme", name="Acme", default_group="Newsletter")
    PagesPartner(empty, "acme").submit("a@example.com", "b@example.com")
    browser = new_person(empty, is_administrator=True).browser
    for table in ("unsubscribes", "unsubscribe_versions", "submissions"):
        empty.app.run(execute(empty.app.database, f"DROP TABLE {table}"))
    for path in ("/", "/?organization=acme"):
        shown = browser.get(path)
        assert shown.status == 200
        assert tiles(shown)["E-mail"] == ("2", "0")
