"""The requests of the benchmark of pages: each page of the application, and some again with parameters.

The list of pages is the application's own. A new page is measured without a change here, unless its path has a
parameter without an example. Such a parameter stops the benchmark, and a test before it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

import msgspec

from bench.fixtures import ADMINISTRATOR, COLLEAGUE, ORGANIZATION_ADMIN, SLUG, UNUSED_ACTION
from bench.history import CHANNEL, KNOWN, Dataset
from bench.scripts import form, page
from bench.server import BenchError
from stoplist.web.admin.cookies import NAME
from stoplist.web.admin.screens import ROUTES

_HERE = "bench/requests.py"
_FEED = "/unsubscribes/{org_slug}/{channel}"
_RECORD = f"{_FEED}/{{seq}}"
_SUBMISSION = "/unsubscribes/{submission_id}"
_SEARCH = "/unsubscribes"
# Not pages: files are produced while they are sent, and may have any length.
_DOWNLOADS = frozenset({"/audit/export"})


class MeasuredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a page. If `is_big`, only the larger database has the page."""

    title: str
    target: str
    by: str = ADMINISTRATOR
    fields: dict[str, str] | None = None
    is_big: bool = False

    def request(self, dataset: Dataset) -> bytes:
        """Return the request as a browser sends it."""
        cookie = f"{NAME}={dataset.tokens[self.by]}"
        if self.fields is None:
            return page(self.target, cookie)
        return form(self.target, cookie, urlencode(self.fields).encode())


def measured_requests(dataset: Dataset) -> list[MeasuredRequest]:
    """Return requests to every page except those for signing in. Raises BenchError if a path lacks an example."""
    return [*_each_page(dataset), *_requests_with_parameters(dataset), *_as_organization_admin(dataset), *_big(dataset)]


def _each_page(dataset: Dataset) -> Iterator[MeasuredRequest]:
    for path in dict.fromkeys(route.path for route in ROUTES if route.method == "GET" and not route.is_open):
        if path not in _DOWNLOADS:
            yield MeasuredRequest(title=path, target=_target(path, dataset))


def _requests_with_parameters(dataset: Dataset) -> Iterator[MeasuredRequest]:
    """Yield requests to the same pages with parameters."""
    today = datetime.now(UTC).date()
    first, last = (str(today - timedelta(days=days)) for days in (31, 30))
    # Both databases have enough records for a page that reads as many as it may.
    many_days = {"from": str(today - timedelta(days=55)), "until": str(today - timedelta(days=11))}
    feed = {
        "one group and status": {"group": dataset.group_id, "status": "unsubscribed"},
        "a filter that finds nothing": {"reason": "legal"},
        "a filter that finds few": {"status": "resubscribed"},
        "two days": {"from": first, "until": last},
        "nothing within many days": many_days | {"reason": "legal"},
        "from the middle on": {"before": str(dataset.middle_seq)},
    }
    for label, query in feed.items():
        yield _with_query(_FEED, label, dataset, query)
    yield MeasuredRequest(
        title=f"{_RECORD}, a long history", target=_target(_RECORD, dataset, seq=str(dataset.long_history_seq))
    )
    yield _with_query("/", "one organization", dataset, {"organization": SLUG})
    for label, address in (("found", KNOWN), ("found nowhere", "nobody@known.example"), ("a number", "+442079460123")):
        yield MeasuredRequest(title=f"{_SEARCH}, search: {label}", target=_SEARCH, fields={"address": address})
    audit = {
        "one person": {"person": COLLEAGUE},
        "one action": {"action": "key.create"},
        "one target": {"target": dataset.partner.client_id},
        "ten days": {"from": str(today - timedelta(days=40)), "until": last},
        "person and action that never met": {"person": COLLEAGUE, "action": UNUSED_ACTION},
    }
    for label, query in audit.items():
        yield _with_query("/audit", label, dataset, query)


def _as_organization_admin(dataset: Dataset) -> Iterator[MeasuredRequest]:
    """Yield the pages whose statements differ for people who see some organizations only."""
    for path in ("/", _SEARCH, _FEED, "/organizations", "/settings/keys", "/audit"):
        yield MeasuredRequest(
            title=f"{path}, as an organization's admin", target=_target(path, dataset), by=ORGANIZATION_ADMIN
        )
    yield MeasuredRequest(
        title=f"{_SEARCH}, search: found, as an organization's admin",
        target=_SEARCH,
        fields={"address": KNOWN},
        by=ORGANIZATION_ADMIN,
    )


def _big(dataset: Dataset) -> Iterator[MeasuredRequest]:
    """Yield the pages of the biggest possible submission, which the smaller database lacks."""
    for path in (_SUBMISSION, f"{_SUBMISSION}/reverse"):
        target = _target(path, dataset, submission_id=dataset.big_submission_id)
        yield MeasuredRequest(title=f"{path}, of 10 000 items", target=target, is_big=True)


def _with_query(path: str, label: str, dataset: Dataset, query: dict[str, str]) -> MeasuredRequest:
    return MeasuredRequest(title=f"{path}, {label}", target=f"{_target(path, dataset)}?{urlencode(query)}")


def _target(path: str, dataset: Dataset, **values: str) -> str:
    """Return the path with an example for each of its parameters."""
    known = {
        "org_slug": SLUG,
        "slug": SLUG,
        "channel": CHANNEL,
        "seq": str(dataset.record_seq),
        "client_id": dataset.partner.client_id,
        "submission_id": dataset.submission_id,
        "group_id": dataset.group_id,
        "email": COLLEAGUE,
        **values,
    }
    try:
        return path.replace(":path}", "}").format_map({name: quote(value) for name, value in known.items()})
    except KeyError as missing:
        raise BenchError(f"{_HERE} has no example of {missing} in the path of the page {path}") from None
