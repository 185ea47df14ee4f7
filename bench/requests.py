"""What the pages are asked in the bench: each page of the application, and those where the question matters again.

The list of pages is the application's own. A new one is measured by itself as long as its path names nothing new; a
name in a path that has no example here stops the bench, and a test before it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

import msgspec

from bench.fixtures import ADMINISTRATOR, COLLEAGUE, NEVER_DONE, ORGANIZATION_ADMIN, SLUG
from bench.history import CHANNEL, KNOWN, Past
from bench.scripts import form, page
from bench.server import BenchError
from stoplist.web.admin.cookies import NAME
from stoplist.web.admin.screens import ROUTES

_HERE = "bench/requests.py"
_FEED = "/unsubscribes/{org_slug}/{channel}"
_RECORD = f"{_FEED}/{{seq}}"
_SUBMISSION = "/unsubscribes/{submission_id}"
_SEARCH = "/unsubscribes"
# What is no page: files are made while they are sent, and may be as long as they like.
_DOWNLOADS = frozenset({"/audit/export"})


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a page. `is_big` ones can be asked of the larger database alone."""

    title: str
    target: str
    by: str = ADMINISTRATOR
    fields: dict[str, str] | None = None
    is_big: bool = False

    def request(self, past: Past) -> bytes:
        """As a browser sends it."""
        cookie = f"{NAME}={past.tokens[self.by]}"
        if self.fields is None:
            return page(self.target, cookie)
        return form(self.target, cookie, urlencode(self.fields).encode())


def asks(past: Past) -> list[Ask]:
    """Every page but those of signing in. Raises BenchError where there is no example of what a path names."""
    return [*_each_page(past), *_questions(past), *_of_organization_admin(past), *_big(past)]


def _each_page(past: Past) -> Iterator[Ask]:
    for path in dict.fromkeys(way.path for way in ROUTES if way.method == "GET" and not way.is_open):
        if path not in _DOWNLOADS:
            yield Ask(title=path, target=_target(path, past))


def _questions(past: Past) -> Iterator[Ask]:
    """The same pages asked for something in particular."""
    today = datetime.now(UTC).date()
    first, last = (str(today - timedelta(days=days)) for days in (31, 30))
    # What goes through as many as a page may, does so in the smaller database too.
    many_days = {"from": str(today - timedelta(days=55)), "until": str(today - timedelta(days=11))}
    feed = {
        "one group and status": {"group": past.group_id, "status": "unsubscribed"},
        "a filter that finds nothing": {"reason": "legal"},
        "a filter that finds few": {"status": "resubscribed"},
        "two days": {"from": first, "until": last},
        "nothing within many days": many_days | {"reason": "legal"},
        "from the middle on": {"before": str(past.middle_seq)},
    }
    for words, query in feed.items():
        yield _asked(_FEED, words, past, query)
    yield Ask(title=f"{_RECORD}, a long history", target=_target(_RECORD, past, seq=str(past.lively_seq)))
    yield _asked("/", "one organization", past, {"organization": SLUG})
    for words, address in (("found", KNOWN), ("found nowhere", "nobody@known.example"), ("a number", "+442079460123")):
        yield Ask(title=f"{_SEARCH}, search: {words}", target=_SEARCH, fields={"address": address})
    audit = {
        "one person": {"person": COLLEAGUE},
        "one action": {"action": "key.create"},
        "one target": {"target": past.partner.client_id},
        "ten days": {"from": str(today - timedelta(days=40)), "until": last},
        "person and action that never met": {"person": COLLEAGUE, "action": NEVER_DONE},
    }
    for words, query in audit.items():
        yield _asked("/audit", words, past, query)


def _of_organization_admin(past: Past) -> Iterator[Ask]:
    """The pages whose statements are others for whoever sees some organizations alone."""
    for path in ("/", _SEARCH, _FEED, "/organizations", "/settings/keys", "/audit"):
        yield Ask(title=f"{path}, as an organization's admin", target=_target(path, past), by=ORGANIZATION_ADMIN)
    yield Ask(
        title=f"{_SEARCH}, search: found, as an organization's admin",
        target=_SEARCH,
        fields={"address": KNOWN},
        by=ORGANIZATION_ADMIN,
    )


def _big(past: Past) -> Iterator[Ask]:
    """The biggest submission that there can be; the smaller database has none."""
    for path in (_SUBMISSION, f"{_SUBMISSION}/reverse"):
        target = _target(path, past, submission_id=past.big_submission_id)
        yield Ask(title=f"{path}, of 10 000 items", target=target, is_big=True)


def _asked(path: str, words: str, past: Past, query: dict[str, str]) -> Ask:
    return Ask(title=f"{path}, {words}", target=f"{_target(path, past)}?{urlencode(query)}")


def _target(path: str, past: Past, **values: str) -> str:
    """The path with an example for each name in it."""
    known = {
        "org_slug": SLUG,
        "slug": SLUG,
        "channel": CHANNEL,
        "seq": str(past.record_seq),
        "client_id": past.partner.client_id,
        "submission_id": past.submission_id,
        "group_id": past.group_id,
        "email": COLLEAGUE,
        **values,
    }
    try:
        return path.replace(":path}", "}").format_map({name: quote(value) for name, value in known.items()})
    except KeyError as missing:
        raise BenchError(f"{_HERE} has no example of {missing} in the path of the page {path}") from None
