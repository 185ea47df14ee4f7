"""The requests of the benchmark of pages: each page of the application, and some again with parameters.

The list of pages is the application's own. A new page is measured without a change here, unless its path has a
parameter without an example. Such a parameter stops the benchmark, and a test before it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

import msgspec

from bench.dataset import ADMINISTRATOR, CHANNEL, COLLEAGUE, KNOWN, ORGANIZATION_ADMIN, SLUG, UNUSED_ACTION, Dataset
from bench.scripts import page
from bench.server import BenchError
from stoplist.web.admin.screens import ROUTES

_FEED, _SUBMISSION, _SEARCH = "/unsubscribes/{org_slug}/{channel}", "/unsubscribes/{submission_id}", "/unsubscribes"
# Not pages: files are produced while they are sent, and may have any length.
_DOWNLOADS = frozenset(
    {
        "/audit/export",
        "/unsubscribes/{org_slug}/{channel}/export/file",
        "/unsubscribes/{org_slug}/{channel}/{seq}/person/file",
        "/settings/imports/{import_id}/rejects",
    }
)


class MeasuredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a page. If `is_big`, only the larger database has the page."""

    title: str
    target: str
    by: str = ADMINISTRATOR
    fields: dict[str, str] | None = None
    is_big: bool = False

    def request(self, dataset: Dataset) -> bytes:
        """Return the request as a browser sends it."""
        form = None if self.fields is None else urlencode(self.fields).encode()
        return page(self.target, dataset.tokens[self.by], form)


def measured_requests(dataset: Dataset) -> list[MeasuredRequest]:
    """Return requests to every page except those for signing in. Raises BenchError if a path lacks an example."""
    paths = dict.fromkeys(route.path for route in ROUTES if route.method == "GET" and not route.is_open)
    each = [MeasuredRequest(title=path, target=_target(path, dataset)) for path in paths if path not in _DOWNLOADS]
    return [*each, *_with_parameters(dataset), *_as_organization_admin(dataset), *_big(dataset)]


def _with_parameters(dataset: Dataset) -> Iterator[MeasuredRequest]:
    """Yield requests to the same pages with parameters."""

    def query(path: str, label: str, **query: str) -> MeasuredRequest:
        # Parameters that are reserved words of Python end in an underscore.
        encoded = urlencode({name.rstrip("_"): value for name, value in query.items()})
        return MeasuredRequest(title=f"{path}, {label}", target=f"{_target(path, dataset)}?{encoded}")

    def day(days_ago: int) -> str:
        return str(datetime.now(UTC).date() - timedelta(days=days_ago))

    yield query(_FEED, "one group and status", group=dataset.group_id, status="unsubscribed")
    yield query(_FEED, "a filter that finds nothing", reason="legal")
    yield query(_FEED, "a filter that finds few", status="resubscribed")
    yield query(_FEED, "two days", from_=day(31), until=day(30))
    # Both databases have enough records for a page that reads as many as it may.
    yield query(_FEED, "nothing within many days", from_=day(55), until=day(11), reason="legal")
    yield query(_FEED, "from the middle on", before=str(dataset.middle_seq))
    target = _target(f"{_FEED}/{{seq}}", dataset, seq=str(dataset.long_history_seq))
    yield MeasuredRequest(title=f"{_FEED}/{{seq}}, a long history", target=target)
    yield query("/", "one organization", organization=SLUG)
    yield _search("found", KNOWN)
    yield _search("found nowhere", "nobody@known.example")
    yield _search("a number", "+442079460123")
    yield query("/audit", "one person", person=COLLEAGUE)
    yield query("/audit", "one action", action="key.create")
    yield query("/audit", "one target", target=dataset.partner.client_id)
    yield query("/audit", "ten days", from_=day(40), until=day(30))
    yield query("/audit", "person and action that never met", person=COLLEAGUE, action=UNUSED_ACTION)


def _as_organization_admin(dataset: Dataset) -> Iterator[MeasuredRequest]:
    """Yield the pages whose statements differ for people who see some organizations only."""
    label = "as an organization's admin"
    for path in ("/", _SEARCH, _FEED, "/organizations", "/settings/keys", "/audit"):
        yield MeasuredRequest(title=f"{path}, {label}", target=_target(path, dataset), by=ORGANIZATION_ADMIN)
    yield _search(f"found, {label}", KNOWN, by=ORGANIZATION_ADMIN)


def _big(dataset: Dataset) -> Iterator[MeasuredRequest]:
    """Yield the pages of the biggest possible submission, which the smaller database lacks."""
    for path in (_SUBMISSION, f"{_SUBMISSION}/reverse"):
        target = _target(path, dataset, submission_id=dataset.big_submission_id)
        yield MeasuredRequest(title=f"{path}, of 10 000 items", target=target, is_big=True)


def _search(label: str, address: str, by: str = ADMINISTRATOR) -> MeasuredRequest:
    return MeasuredRequest(title=f"{_SEARCH}, search: {label}", target=_SEARCH, fields={"address": address}, by=by)


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
        "link_key_id": dataset.link_key_id,
        "import_id": dataset.import_id,
        "email": COLLEAGUE,
        **values,
    }
    try:
        return path.replace(":path}", "}").format_map({name: quote(value) for name, value in known.items()})
    except KeyError as missing:
        raise BenchError(f"bench/requests.py has no example of {missing} in the path of the page {path}") from None
