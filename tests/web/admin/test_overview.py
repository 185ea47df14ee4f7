"""The overview: charts with their figures, keys to look at, stores, and what to do where there is nothing yet.

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
from tests.web.admin.newcomers import new_name, newcomer
from tests.web.admin.opt_outs import DAY_S, Partner, clock_of, new_organization
from tests.web.admin.pages import ROLES, Browser, Pages, Shown
from tests.web.application import BASE_URL, Application


@pytest.fixture
def empty(database_url: str, clock: FakeClock) -> Iterator[Pages]:
    """A deployment in which nothing was made."""
    with in_a_loop(migrated(database_url)) as (run, database):
        yield Pages(Application(run, database, clock))


def figures(shown: Shown, caption: str) -> list[list[str]]:
    """The table behind a chart, with its head, as text."""
    table = shown.html.partition(f'aria-label="{caption}: the figures"')[2].partition("</table>")[0]
    assert table, f"no figures of {caption}"
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("<tr>")[1:]]
    return [[cell.strip() for cell in row] for row in rows]


def tiles(shown: Shown) -> dict[str, tuple[str, str]]:
    """What stands now, by channel: barred, and resubscribed."""
    line = r'<div class="tile">\s*<dt>(?:<a [^>]*>)?(.*?)(?:</a>)?</dt>\s*<dd>(.*?)</dd>\s*<dd class="beside">(.*?) '
    found = re.findall(line, shown.html)
    return {channel: (barred, back) for channel, barred, back in found}


def of_one(browser: Browser, slug: str) -> Shown:
    """The overview of one organization, chosen in the form."""
    return browser.send(browser.get("/").form("/"), organization=slug)


PER_DAY, REASONS = "Opt-outs a day, last 30 days", "Opt-outs of the last 30 days"


def test_pictures_and_figures_of_one_organization(pages: Pages) -> None:
    """What was recorded each day by channel, what stands now, and why: the organization is chosen in a form."""
    partner = new_organization(pages)
    partner.submit("a@example.com", {"address": "b@example.com", "reason": "complaint"}, "c@example.com")
    partner.submit("+14155550123", channel="sms")
    clock_of(pages).advance(60)
    partner.resubscribe("c@example.com")
    shown = of_one(pages.signed_in("administrator"), partner.slug)
    assert partner.slug.title() in shown.title
    assert tiles(shown) == {"E-mail": ("2", "1"), "SMS": ("1", "0"), "Phone": ("0", "0")}
    head, today, *earlier = figures(shown, PER_DAY)
    assert head == ["Day", "E-mail", "SMS", "Phone"]
    assert today == ["2047-01-15", "3", "1", "0"]
    assert len(earlier) == 29
    assert {tuple(day[1:]) for day in earlier} == {("0", "0", "0")}
    assert figures(shown, REASONS) == [
        ["Reason", "Opt-outs", "Share"],
        ["Unsubscribe", "3", "75.0 %"],
        ["Complaint", "1", "25.0 %"],
    ]


def test_a_chart_says_in_words_what_it_shows(pages: Pages) -> None:
    """For whoever does not see it, and over the bar of a day for whoever does."""
    partner = new_organization(pages)
    partner.submit(*(f"p{number}@example.com" for number in range(7)))
    shown = of_one(pages.signed_in("administrator"), partner.slug)
    assert f'aria-label="{PER_DAY}: 7 in 30 days, at most 7 in one. The figures follow in a table."' in shown.html
    assert "<title>2047-01-15: 7 E-mail, 0 SMS, 0 Phone</title>" in shown.html


def test_every_day_that_is_not_nought_is_seen_and_no_bar_leaves_the_chart(pages: Pages) -> None:
    """Beside a day with very many; two that are nought have no bar."""
    partner = new_organization(pages)
    partner.submit("first@example.com")
    clock_of(pages).advance(DAY_S / 24 * 23)
    partner = Partner(pages, partner.slug)
    partner.submit(*(f"p{number}@example.com" for number in range(2_500)))
    browser = newcomer(pages, is_administrator=True).browser
    shown = of_one(browser, partner.slug)
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


def test_a_month_without_an_opt_out_is_said_in_words(pages: Pages) -> None:
    """What stands now stays; the chart is empty."""
    partner = new_organization(pages)
    partner.submit("a@example.com")
    clock_of(pages).advance(31 * DAY_S)
    shown = of_one(newcomer(pages, is_administrator=True).browser, partner.slug)
    assert tiles(shown)["E-mail"] == ("1", "0")
    assert "Nobody opted out in the last 30 days" in shown.text
    assert '<rect class="series' not in shown.html


@pytest.mark.parametrize("role", ["admin", "viewer"])
def test_somebody_sees_the_sum_of_his_organizations_alone(pages: Pages, role: str) -> None:
    """With the same figures as for each of them; another's page does not exist for him."""
    one, two, hidden = (new_organization(pages) for _ in range(3))
    one.submit("a@example.com")
    two.submit("a@example.com", "b@example.com")
    hidden.submit(*(f"p{number}@example.com" for number in range(9)))
    browser = newcomer(pages, roles={one.slug: role, two.slug: role}).browser  # type: ignore[dict-item]
    assert tiles(browser.get("/"))["E-mail"] == ("3", "0")
    assert tiles(of_one(browser, two.slug))["E-mail"] == ("2", "0")
    assert [name for name, _ in browser.get("/").form("/").values] == ["organization"]
    assert hidden.slug not in browser.get("/").html
    for slug in (hidden.slug, "none-such", "x" * 1_000, "<script>"):
        assert browser.get(f"/?organization={slug}").status == 404


def test_with_one_organization_there_is_nothing_to_choose(pages: Pages) -> None:
    """No form."""
    partner = new_organization(pages)
    partner.submit("a@example.com")
    shown = newcomer(pages, roles={partner.slug: "viewer"}).browser.get("/")
    assert tiles(shown)["E-mail"] == ("1", "0")
    assert [form.action for form in shown.forms] == ["/settings/sign-out"]


def test_keys_that_were_refused_are_named_with_how_often(pages: Pages) -> None:
    """At once, not only when the use of the minute is written; a link leads to the key."""
    partner = new_organization(pages)
    partner.submit("a@example.com")
    browser = newcomer(pages, roles={partner.slug: "viewer"}).browser
    assert "no key was refused by a limit" in browser.get("/").text
    wrong = {"client_id": partner.key.client_id, "client_secret": "svc_cs_wrong", "grant_type": "client_credentials"}
    refused = [pages.app.ask_token(wrong).status for _ in range(12)]
    shown = browser.get("/")
    limits, failures = refused.count(429), refused.count(401)
    assert limits
    assert f"{limits} refused by a limit, {failures} failed to authenticate" in shown.text
    assert f"/settings/keys/{partner.key.client_id}" in shown.links
    assert "Alarm" not in shown.text


def test_a_key_with_an_alarm_is_marked_for_a_week(pages: Pages) -> None:
    """With the time of the alarm."""
    partner = new_organization(pages)
    partner.submit("a@example.com")

    async def alarm(transaction: Transaction) -> None:
        key = Actor(kind="client", id=partner.key.client_id)
        await trail.record(transaction, key, "client.reuse_alarm", key.id, at_ms=pages.app.clock.now_ms())

    pages.app.run(pages.app.database.write(alarm))
    shown = newcomer(pages, roles={partner.slug: "viewer"}).browser.get("/")
    assert re.search(r"Nightly import Alarm A refresh token was used twice, 2047-01-15.08:00.UTC", shown.text)
    clock_of(pages).advance(7 * DAY_S)
    shown = newcomer(pages, roles={partner.slug: "viewer"}).browser.get("/")
    assert "Alarm" not in shown.text


@pytest.mark.parametrize("role", [*ROLES])
def test_the_stores_are_shown_to_administrators(pages: Pages, role: str) -> None:
    """They are nobody else's affair."""
    Partner(pages, "acme").submit("a@example.com")
    Partner(pages, "bolt").submit("a@example.com")
    shown = pages.signed_in(role).get("/")
    assert shown.status == 200
    assert ("Limit store" in shown.text) == (role == "administrator")
    if role == "administrator":
        kind = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[pages.app.database.kind]
        assert re.search(rf"Database (Answers|Slow) {kind}, in [\d.]+ ms", shown.text)
        assert "None This process counts by itself" in shown.text


def with_limiter(pages: Pages, limiter: Limiter) -> Browser:
    """An administrator before an application that counts with it."""
    Partner(pages, "acme").submit("a@example.com")
    browser = newcomer(pages, is_administrator=True).browser
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


def test_a_limit_store_that_is_reached_is_said_to_be(pages: Pages, valkey: Valkey) -> None:
    """All processes count together."""
    with patience():
        limiter = pages.app.run(open_limiter(valkey.url, pages.app.clock))
    try:
        assert "Limit store Reached All processes count together." in with_limiter(pages, limiter).get("/").text
    finally:
        pages.app.run(limiter.close())


def test_a_limit_store_that_is_lost_is_said_in_words_with_what_it_means(pages: Pages) -> None:
    """Each process counts alone, and how much was counted so."""
    limiter = pages.app.run(open_limiter("redis://127.0.0.1:1/0", pages.app.clock))
    try:
        browser = with_limiter(pages, limiter)
        for _ in range(3):
            pages.app.run(limiter.api("svc_ci_x", limit=60))
        shown = browser.get("/")
        assert "Not reached Each process counts alone" in shown.text
        assert "Counted alone so far: 3." in shown.text
    finally:
        pages.app.run(limiter.close())


def test_an_empty_deployment_says_what_to_do_next(empty: Pages) -> None:
    """First an organization, then a key, then the first opt-out; each step leads to where it is done."""
    browser = newcomer(empty, is_administrator=True).browser
    shown = browser.get("/")
    assert "/organizations/_new" in shown.links
    assert browser.get("/organizations/_new").status == 200
    empty.administer(create_organization, slug="acme", name="Acme", default_group="Newsletter")
    shown = browser.get("/")
    assert "No opt-out yet, and no API key" in shown.text
    assert "/settings/keys/new" in shown.links
    viewer = newcomer(empty, roles={"acme": "viewer"}).browser.get("/")
    assert "/settings/keys/new" not in viewer.links
    assert "An admin of your organization can create one" in viewer.text
    empty.administer(create_credential, label="Nightly", organizations=["acme"])
    shown = browser.get("/")
    assert "/settings/keys/new" not in shown.links
    assert "/settings/keys" in shown.links
    assert "/unsubscribes" in shown.links
    Partner(empty, "acme").submit("a@example.com")
    assert tiles(browser.get("/"))["E-mail"] == ("1", "0")


def test_somebody_without_a_role_is_told_whom_to_ask(pages: Pages) -> None:
    """And offered nothing that would be refused."""
    shown = pages.signed_in("nobody").get("/")
    assert "You have no role in an organization" in shown.text
    assert "/organizations/_new" not in shown.links


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "Zoë & 例", "{{ 7 * 7 }}"])
def test_names_are_shown_as_they_are(pages: Pages, name: str) -> None:
    """In the title, in the heading and in the box to choose from."""
    partner = new_organization(pages, new_name(), name)
    partner.submit("a@example.com")
    shown = of_one(pages.signed_in("administrator"), partner.slug)
    assert shown.title.startswith(f"Overview: {name} · Stoplist")
    assert f"Overview: {name} Organization" in shown.text
    assert "<script>alert" not in shown.html


def test_no_record_is_read_for_the_overview_so_that_it_costs_the_same_with_any_number(empty: Pages) -> None:
    """It is shown from daily counts alone: also where there are no tables of records any more."""
    empty.administer(create_organization, slug="acme", name="Acme", default_group="Newsletter")
    Partner(empty, "acme").submit("a@example.com", "b@example.com")
    browser = newcomer(empty, is_administrator=True).browser
    for table in ("unsubscribes", "unsubscribe_versions", "submissions"):
        empty.app.run(execute(empty.app.database, f"DROP TABLE {table}"))
    for path in ("/", "/?organization=acme"):
        shown = browser.get(path)
        assert shown.status == 200
        assert tiles(shown)["E-mail"] == ("2", "0")
