"""The metrics for Prometheus (docs/interface.md section D10)."""

import asyncio
import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoplist.oauth import ceilings
from tests.web.application import Application, Key, basic

CC = {"grant_type": "client_credentials"}


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
    assert not [name for name in counts(app) if not name.startswith("store_")]


def test_requests_tokens_refreshes_alarms_and_refusals_are_counted(app: Application, key: Key) -> None:
    """By route and status; an unknown path counts as `unknown`."""
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
    assert {name: value for name, value in found.items() if not name.startswith("store_")} == {
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


@pytest.mark.parametrize("method", ["GET", "Zq9Xv7"])
def test_no_input_of_a_client_becomes_a_label(app: Application, key: Key, method: str) -> None:
    """Neither ids nor paths nor methods: they would fill the memory and disclose data."""
    pair = app.pair(key)
    for target in ("/Zq9Xv7", "/api/v1/Zq9Xv7?Zq9Xv7", "/oauth/token?Zq9Xv7", "/oauth/Zq9Xv7"):
        app.request(method, target, headers=[("x-request-id", "Zq9Xv7"), ("authorization", "Bearer Zq9Xv7")])
        app.call(pair["access_token"], target, method=method)
    app.ask_token(CC | {"client_id": "Zq9Xv7"})
    app.ask_token(CC, basic(key.client_id, "Zq9Xv7"))
    app.ask_token({"grant_type": "Zq9Xv7"})
    text = page(app)
    assert not re.search(rf"(?i)zq9xv7|svc_|{key.client_id}", text)
    labels = {name for line in text.splitlines() for name in re.findall(r'(\w+)="', line)}
    assert labels == {"route", "status", "le"}
