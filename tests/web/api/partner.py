"""A partner at the six operations: what it sends and is answered over HTTP, and what is then stored."""

import gzip
import itertools
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from stoplist.organizations.groups import create_group
from stoplist.unsubscribes.channel import CHANNELS, feed_id
from tests.builders import make_organization, sql
from tests.fakes import FakeClock
from tests.unsubscribes.partner import ALL_PERMISSIONS, written
from tests.web.application import Answer, Application, Headers

JSON = ("content-type", "application/json")
GZIP = ("content-encoding", "gzip")
FEED_TABLES = ("feeds", "unsubscribes", "unsubscribe_versions", "submissions", "feed_days")

ReadQuery = str | dict[str, str] | Sequence[tuple[str, str]]
Rows = dict[str, list[tuple[Any, ...]]]

_NUMBERS = itertools.count(1)


class Partner:
    """Somebody with a token, and the organization with a default group that it stands for where none is named."""

    def __init__(self, app: Application, clock: FakeClock, *, slug: str, organization_id: int, token: str) -> None:
        self.app, self.clock = app, clock
        self.slug, self.organization_id, self.token = slug, organization_id, token
        self.group_id = self._default_group()

    @classmethod
    def new(cls, app: Application, clock: FakeClock) -> "Partner":
        """One who may do all, for an organization that nobody else uses."""
        slug = f"org-{next(_NUMBERS)}"
        made = app.run(make_organization(app.database, clock, slug, default_group="Newsletter"))
        key = app.new_key(organizations=[slug], permissions=frozenset(ALL_PERMISSIONS))
        token = app.pair(key)["access_token"]
        return cls(app, clock, slug=slug, organization_id=made.organization_id, token=token)

    def at(self, app: Application) -> "Partner":
        """The same at another application."""
        return Partner(app, self.clock, slug=self.slug, organization_id=self.organization_id, token=self.token)

    def colleague(self, *permissions: str) -> "Partner":
        """Another key for the same organization, which may do this much."""
        key = self.app.new_key(organizations=[self.slug], permissions=frozenset(permissions))
        token = self.app.pair(key)["access_token"]
        return Partner(self.app, self.clock, slug=self.slug, organization_id=self.organization_id, token=token)

    def post(self, body: Any, *headers: tuple[str, str | bytes], channel: str = "email") -> Answer:
        """The answer to this body, JSON already if it is bytes; with its content type unless `headers` have one."""
        sent: Headers = [*headers] if any(name == JSON[0] for name, _ in headers) else [JSON, *headers]
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.app.request("POST", path(channel), headers=[self.authorization, *sent], body=raw)

    def submit(self, *items: Any, prefer: str | None = None, channel: str = "email", **named: Any) -> Answer:
        """The answer to these items, for the organization and group that `named` says."""
        headers = [] if prefer is None else [("prefer", prefer)]
        return self.post({**named, "items": items}, *headers, channel=channel)

    def get(self, query: ReadQuery = "", *headers: tuple[str, str | bytes], channel: str = "email") -> Answer:
        """The answer to a query, percent-encoded already if it is text."""
        text = query if isinstance(query, str) else urlencode(query, quote_via=quote)
        target = f"{path(channel)}?{text}" if text else path(channel)
        return self.app.request("GET", target, headers=[self.authorization, *headers])

    def feed(self, **query: str) -> list[dict[str, Any]]:
        """All records, page by page."""
        found: list[dict[str, Any]] = []
        while True:
            answer = self.get(query)
            assert answer.status == 200, answer.body
            page = answer.json()
            found += page["items"]
            if not page["has_more"]:
                return found
            query["cursor"] = page["next_cursor"]

    def new_group(self, name: str) -> str:
        """The id of another group of the organization."""
        return self.app.administer(create_group, org_slug=self.slug, name=name).group_id

    def ago(self, milliseconds: int) -> str:
        """The time so long ago, as partners write it."""
        return written(self.clock.now_ms() - milliseconds)

    def stored(self, channel: str = "email") -> Rows:
        """All that the store holds of the organization's feed, to be compared with what it holds later."""
        return self.app.run(self._stored(feed_id(self.organization_id, CHANNELS[channel])))  # type: ignore[no-any-return]

    @property
    def authorization(self) -> tuple[str, str]:
        return "authorization", f"Bearer {self.token}"

    def _default_group(self) -> str:
        text = "SELECT default_group_id FROM organizations WHERE slug = :slug"
        return str(self.app.value(text, slug=self.slug))

    async def _stored(self, number: int) -> Rows:
        stored: Rows = {}
        for table in FEED_TABLES:
            query = sql(f"SELECT * FROM {table} WHERE feed_id = :feed_id")  # noqa: S608
            rows = await self.app.database.all(query, feed_id=number)
            stored[table] = sorted((tuple(row) for row in rows), key=repr)
        return stored


NOTHING: Rows = {table: [] for table in FEED_TABLES}
"""What is stored of a feed that nobody has submitted to or followed."""


def path(channel: str = "email") -> str:
    return f"/api/v1/unsubscribe/{channel}"


def gzipped(body: Any) -> bytes:
    """A body as gzip."""
    return gzip.compress(body if isinstance(body, bytes) else json.dumps(body).encode(), mtime=0)


def refusal(answer: Answer) -> dict[str, Any]:
    """The envelope of an error, without its text that stands there twice: the code and the extra fields."""
    fields = dict(answer.json())
    assert fields.pop("message") == fields.pop("error_description") != ""
    return fields


def text_of(answer: Answer) -> str:
    """The text of an error."""
    return str(answer.json()["message"])
