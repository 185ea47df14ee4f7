"""Faults of the application raise their alarm, and no other: its real metrics, evaluated by Prometheus' own tool.

The faults of several processes are in tests/e2e/test_alarms.py.
"""

import json
from collections.abc import Callable
from unittest.mock import AsyncMock

import pytest

from stoplist.notices.model import WEBHOOK
from stoplist.notices.outcome import GIVEN_UP
from stoplist.oauth.credentials import deactivate_credential
from stoplist.unsubscribes.model import OptOutStores
from tests.db.full_disk import two_free_pages
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.keys import Key
from tests.services.promtool import Phase, Promtool
from tests.web.application import Application
from tests.web.links.clicks import Sender

EMAIL = "/api/v1/unsubscribe/email"
HOURS = 48


def submit(app: Application, key: Key, count: int = 1) -> int:
    """Submit opt-outs of new people, and return the status."""
    token = app.pair(key)["access_token"]
    items = [{"address": f"{token[-20:]}{number}@example.com".lower()} for number in range(count)]
    headers: list[tuple[str, str | bytes]] = [
        ("authorization", f"Bearer {token}"),
        ("content-type", "application/json"),
    ]
    body = json.dumps({"org_slug": "acme", "all_groups": True, "items": items}).encode()
    return app.request("POST", EMAIL, headers=headers, body=body).status


def follow(app: Application, key: Key) -> None:
    """Read all changes, and present the last cursor, as a program does that has stored them."""
    token = app.pair(key)["access_token"]
    page = app.call(token, EMAIL).json()
    while page["has_more"]:
        page = app.call(token, f"{EMAIL}?cursor={page['next_cursor']}").json()
    assert app.call(token, f"{EMAIL}?cursor={page['next_cursor']}").status == 200
    app.run(app.parts.positions.flush(app.database))


def measure(app: Application) -> None:
    stores = OptOutStores(database=app.database, clock=app.clock, secret_keys=app.parts.secret_keys)
    app.run(app.worst_keys.measure(stores, hours=HOURS))


def use(app: Application, key: Key) -> None:
    """Do what partners do all day; a key that is refused by a limit is healthy, too."""
    app.refresh(app.pair(key)["refresh_token"])
    assert submit(app, key) == 200
    follow(app, key)
    app.call("svc_at_unknown")
    sender = Sender.on(app)
    assert sender.post(sender.link()).status == 200
    measure(app)
    app.clock.advance(61)


def present_twice(app: Application, key: Key) -> None:
    token = app.pair(key)["refresh_token"]
    assert [app.refresh(token).status for _ in range(2)] == [200, 400]


def fail_once(app: Application, key: Key) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(app.database), "rows", AsyncMock(side_effect=RuntimeError))
        assert app.issue(key).status == 500


def fill_the_disk(app: Application, key: Key) -> None:
    with two_free_pages(app.database):
        assert submit(app, key, 500) == 503


def click_a_broken_link(app: Application, key: Key) -> None:
    sender = Sender.on(app)
    assert sender.post(sender.link("ann")).status == 422


def fall_behind(app: Application, key: Key) -> None:
    assert submit(app, key) == 200
    app.clock.advance(HOURS * 3600 + 1)
    measure(app)


def give_a_notice_up(app: Application, key: Key) -> None:
    app.metrics.count_notice(GIVEN_UP, WEBHOOK)


FAULTS: dict[str, Callable[[Application, Key], None]] = {
    "StoplistTokenReuse": present_twice,
    "StoplistDefects": fail_once,
    "StoplistStoreErrors": fill_the_disk,
    "StoplistUnusableLinks": click_a_broken_link,
    "StoplistKeyBehind": fall_behind,
    "StoplistNoticesLost": give_a_notice_up,
}


def test_each_fault_raises_its_alarm_alone(shared_database: SharedDatabase, promtool: Promtool) -> None:
    """None fires before, and none some time after the fault."""
    timelines, clock = {}, FakeClock()
    for alarm, break_it in FAULTS.items():
        app = Application(shared_database.run, shared_database.database, clock)
        key = app.new_key()
        pages = []
        for step in (use, use, break_it, use):
            step(app, key)
            pages.append(app.metrics_page())
        app.administer(deactivate_credential, client_id=key.client_id)  # or it would be behind in the next one
        timelines[alarm] = [
            *(Phase(page, 30) for page in pages[:2]),
            Phase(pages[2], 30, frozenset((alarm,))),
            Phase(pages[3], 25 * 60 if alarm == "StoplistNoticesLost" else 130),
        ]
    promtool.assert_alarms(timelines, now_s=0)
