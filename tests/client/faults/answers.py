"""Answers that the proxy gives in place of the service, and what is stored afterwards."""

import gzip
import json
from datetime import datetime
from typing import Any

from stoplist_client import MemoryStore, Record

from tests.client.partners import Partner
from tests.services.fault_kinds import Alter, Reply, is_api
from tests.services.faults import Faults

PAGE_OF_A_PROXY = b"<html><body><h1>502 Bad Gateway</h1></body></html>"


def refusal(status: int, code: str, **headers: str) -> Reply:
    """Return an error answer of the service; `_` in header names stands for `-`."""
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"error": code, "message": "No.", "error_description": "No."}).encode()
    return Reply(status=status, headers={"Content-Type": "application/json"} | told, body=body)


# Temporary failures, each of which is retried.
PASSING = {
    "500": refusal(500, "server_error"),
    "502 in HTML": Reply(status=502, headers={"Content-Type": "text/html"}, body=PAGE_OF_A_PROXY),
    "503": refusal(503, "temporarily_unavailable", Retry_After="2"),
    "503 of a proxy": Reply(status=503, body=b"no server"),
    "504, empty": Reply(status=504),
}
REFUSED_TOKEN = refusal(401, "invalid_token", WWW_Authenticate='Bearer realm="stoplist", error="invalid_token"')


def _half_packed(reply: Reply) -> Reply:
    is_packed = "content-encoding" in reply.headers
    packed = reply.body if is_packed else gzip.compress(reply.body)
    headers = reply.headers if is_packed else {**reply.headers, "content-encoding": "gzip"}
    return Reply(status=reply.status, headers=headers, body=packed[: len(packed) // 2])


# Complete as far as HTTP can tell.
HALF_PACKED = Alter(_half_packed)


def posted_bodies(between: Faults) -> list[Any]:
    """Return the bodies that arrived at the API, in order."""
    return [json.loads(request.body) for request in between.arrived if is_api(request) and request.method == "POST"]


def api_statuses(between: Faults) -> list[int | None]:
    """Return the statuses of the API that the client received, None for no answer."""
    return [seen.client_status for seen in between.seen if is_api(seen.request)]


def records(partner: Partner) -> list[Record]:
    """Return all records of the organization, read without the proxy."""
    with partner.client(store=MemoryStore()) as client:
        return list(client.changes("email"))


def times_sent(body: Any) -> set[datetime]:
    """Return the `occurred_at` of the items of a body."""
    return {datetime.fromisoformat(item["occurred_at"]) for item in body["items"]}
