"""The metrics for Prometheus (docs/interface.md section D10)."""

import asyncio
import itertools
import json
import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoplist.notices.model import MAIL, WEBHOOK
from stoplist.oauth import ceilings
from stoplist.oauth.model import PERMISSIONS
from stoplist.web.metrics import CHORE, IMPORT, REQUEST
from stoplist.web.metrics_page import metrics_address
from tests.keys import CLIENT_CREDENTIALS, Key, basic
from tests.web.application import Application

OF_PROCESS = ("store_", "cpu_", "memory_")


def page(app: Application) -> str:
    """Return the text that the metrics address serves."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    app.run(app.metrics.page({"type": "http", "path": "/metrics"}, receive, send))
    start, body = sent
    headers = dict(start["headers"])
    assert start["status"] == 200
    assert headers[b"content-type"].startswith(b"text/plain")
    assert headers[b"content-length"] == str(len(body["body"])).encode()
    text: str = body["body"].decode()
    return text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("POST", "/metrics", 405),
        ("OPTIONS", "/metrics", 405),
        ("POST", "/oauth/token", 404),
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
    ],
)
def test_the_metrics_address_answers_one_path(app: Application, method: str, path: str, status: int) -> None:
    """Section D10: GET and HEAD of `/metrics`, and nothing else."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def ask() -> None:
        await metrics_address(app.metrics.page)({"type": "http", "method": method, "path": path}, receive, send)

    app.run(ask())
    start, body = sent
    headers = dict(start["headers"])
    assert start["status"] == status
    assert headers[b"content-length"] == str(len(body["body"])).encode()
    assert len(headers[b"x-request-id"]) == 24
    assert (b"stoplist_tokens_issued_total" in body["body"]) == (status == 200)
    assert headers.get(b"allow") == (b"GET, HEAD" if status == 405 else None)


def counts(app: Application) -> dict[str, float]:
    """Return the current samples of the page."""
    return samples(page(app))


def samples(text: str) -> dict[str, float]:
    """Return every sample that is not 0, by name and labels."""
    families = text_string_to_metric_families(text)
    return {
        sample.name.removeprefix("stoplist_") + "".join(f" {text}" for text in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.value and not sample.name.endswith(("_created", "_bucket", "_sum"))
    }


def test_a_new_process_has_counted_nothing(app: Application) -> None:
    """The page is served from the first moment on."""
    assert "stoplist_requests_total" in page(app)
    assert not [name for name in counts(app) if not name.startswith(OF_PROCESS)]


def test_requests_tokens_refreshes_alarms_and_refusals_are_counted(app: Application, key: Key) -> None:
    """They are counted by route and status; an unknown path counts as `unknown`."""
    first = app.pair(key)
    app.refresh(first["refresh_token"])
    app.refresh(first["refresh_token"])
    app.refresh(first["refresh_token"])
    token = app.pair(key)["access_token"]
    for _ in range(6):
        app.issue(key)
    for path in ("/api/v1/x", "/api/v1"):
        app.call(token, path)
    for path in ("/elsewhere", "/nowhere", "/healthz", "/readyz"):
        app.request("GET", path)
    found = counts(app)
    assert {name: value for name, value in found.items() if not name.startswith(OF_PROCESS)} == {
        "requests_total /oauth/token 200": 8,
        "requests_total /oauth/token 400": 2,
        "requests_total /oauth/token 429": 1,
        "requests_total /api/v1/* 404": 2,
        "requests_total unknown 404": 2,
        "requests_total /healthz 200": 1,
        "requests_total /readyz 200": 1,
        "request_seconds_count /oauth/token": 11,
        "request_seconds_count /api/v1/*": 2,
        "request_seconds_count unknown": 2,
        "request_seconds_count /healthz": 1,
        "request_seconds_count /readyz": 1,
        "tokens_issued_total": 7,
        "refreshes_total": 1,
        "reuse_alarms_total": 1,
        "limit_refusals_total /oauth/token": 1,
    }


def test_a_reuse_refused_by_the_limit_counts_as_an_alarm(app: Application, key: Key) -> None:
    """One alarm, one refusal by the limit."""
    app.administer(ceilings.set_ceilings, client_id=key.client_id, token_per_minute=2, api_per_minute=None)
    token = app.pair(key)["refresh_token"]
    app.refresh(token)
    assert app.refresh(token).status == 429
    found = counts(app)
    assert (found["reuse_alarms_total"], found["limit_refusals_total /oauth/token"]) == (1, 1)


def test_the_counts_of_the_driver_are_included(app: Application, key: Key) -> None:
    """Units, commits and the time that they waited; a refresh and an issue are a unit each."""
    before = counts(app)
    app.refresh(app.pair(key)["refresh_token"])
    after = counts(app)
    assert after["store_writes_total"] - before["store_writes_total"] == 2
    assert after["store_commits_total"] - before["store_commits_total"] == 2
    assert after["store_write_wait_seconds_total"] > before["store_write_wait_seconds_total"]
    assert "stoplist_store_writers_waiting 0.0" in page(app)


def test_items_are_counted_by_their_results(app: Application) -> None:
    """With the faulty ones that a lenient submission leaves out."""
    token = app.pair(app.new_key(permissions=frozenset(PERMISSIONS)))["access_token"]
    earlier = "2001-01-01T00:00:00Z"
    for items in (
        [{"address": "ann@counts.example"}, {"address": "bob@counts.example"}, {"address": "no address"}],
        [
            {"address": "ann@counts.example"},
            {"address": "bob@counts.example", "status": "resubscribed", "occurred_at": earlier},
        ],
    ):
        answer = app.request(
            "POST",
            "/api/v1/unsubscribe/email",
            headers=[
                ("authorization", f"Bearer {token}"),
                ("content-type", "application/json"),
                ("prefer", "handling=lenient"),
            ],
            body=json.dumps({"org_slug": "acme", "all_groups": True, "items": items}).encode(),
        )
        assert answer.status == 200, answer.body
    found = {name: value for name, value in counts(app).items() if name.startswith("items")}
    assert found == {
        "items_total email stored": 2,
        "items_total email left_out": 1,
        "items_total email unchanged": 1,
        "items_total email outranked": 1,
    }


def test_an_alarm_sees_the_first_count(app: Application) -> None:
    """Prometheus sees no increase in a series that begins with 1."""
    text = page(app)
    for where in (REQUEST, CHORE, IMPORT):
        assert f'stoplist_defects_total{{where="{where}"}} 0.0' in text
    for name, way in itertools.product(("notice_failures", "notices_given_up", "notices_delivered"), (WEBHOOK, MAIL)):
        assert f'stoplist_{name}_total{{via="{way}"}} 0.0' in text
    app.metrics.count_import("failed")
    app.metrics.count_import("refused")
    app.metrics.show_imports(lambda: 2)
    assert {name: value for name, value in counts(app).items() if not name.startswith(OF_PROCESS)} == {
        "import_work_total failed": 1,
        "import_work_total refused": 1,
        "imports_running": 2,
        "defects_total import": 1,
    }


@pytest.mark.parametrize("method", ["GET", "Zq9Xv7"])
def test_no_input_of_a_client_becomes_a_label(app: Application, key: Key, method: str) -> None:
    """Ids, paths and methods would fill the memory and disclose data."""
    pair = app.pair(key)
    for target in ("/Zq9Xv7", "/api/v1/Zq9Xv7?Zq9Xv7", "/oauth/token?Zq9Xv7", "/oauth/Zq9Xv7"):
        app.request(method, target, headers=[("x-request-id", "Zq9Xv7"), ("authorization", "Bearer Zq9Xv7")])
        app.call(pair["access_token"], target, method=method)
    app.ask_token(CLIENT_CREDENTIALS | {"client_id": "Zq9Xv7"})
    app.ask_token(CLIENT_CREDENTIALS, basic(key.client_id, "Zq9Xv7"))
    app.ask_token({"grant_type": "Zq9Xv7"})
    text = page(app)
    assert not re.search(rf"(?i)zq9xv7|svc_|{key.client_id}", text)
    labels = {name for line in text.splitlines() for name in re.findall(r'(\w+)="', line)}
    assert labels <= {"route", "status", "le", "kind", "via", "where"}, "words of ours, whatever other tests counted"
