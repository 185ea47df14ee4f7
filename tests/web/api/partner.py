"""A partner that uses the six operations over HTTP, and the rows that are stored for it."""

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
from tests.keys import EVERY_PERMISSION
from tests.unsubscribes.partner import written
from tests.web.application import Answer, Application, Headers

JSON = ("content-type", "application/json")
GZIP = ("content-encoding", "gzip")
FEED_TABLES = ("feeds", "unsubscribes", "unsubscribe_versions", "submissions", "feed_days")

ReadQuery = str | dict[str, str] | Sequence[tuple[str, str]]
Rows = dict[str, list[tuple[Any, ...]]]

_NUMBERS = itertools.count(1)


class ApiPartner:
    """A holder of a token, with a default organization that has a default group."""

    def __init__(self, app: Application, clock: FakeClock, *, slug: str, organization_id: int, token: str) -> None:
        self.app, self.clock = app, clock
        self.slug, self.organization_id, self.token = slug, organization_id, token
        self.group_id = self._default_group()

    @classmethod
    def new(cls, app: Application, clock: FakeClock) -> "ApiPartner":
        """Create a partner with all permissions for an organization of its own."""
        slug = f"org-{next(_NUMBERS)}"
        organization = app.run(make_organization(app.database, clock, slug, default_group="Newsletter"))
        key = app.new_key(organizations=[slug], permissions=EVERY_PERMISSION)
        token = app.pair(key)["access_token"]
        return cls(app, clock, slug=slug, organization_id=organization.organization_id, token=token)

    def at(self, app: Application) -> "ApiPartner":
        """Return the same partner at another application."""
        return ApiPartner(app, self.clock, slug=self.slug, organization_id=self.organization_id, token=self.token)

    def colleague(self, *permissions: str) -> "ApiPartner":
        """Create another key for the same organization, with these permissions."""
        key = self.app.new_key(organizations=[self.slug], permissions=frozenset(permissions))
        token = self.app.pair(key)["access_token"]
        return ApiPartner(self.app, self.clock, slug=self.slug, organization_id=self.organization_id, token=token)

    def post(self, body: Any, *headers: tuple[str, str | bytes], channel: str = "email") -> Answer:
        """Post a body, encoded already if it is bytes, as JSON unless `headers` have another content type."""
        sent: Headers = [*headers] if any(name == JSON[0] for name, _ in headers) else [JSON, *headers]
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.app.request("POST", path(channel), headers=[self.authorization, *sent], body=raw)

    def submit(self, *items: Any, prefer: str | None = None, channel: str = "email", **named: Any) -> Answer:
        """Submit items for the organization and group in `named`."""
        headers = [] if prefer is None else [("prefer", prefer)]
        return self.post({**named, "items": items}, *headers, channel=channel)

    def get(self, query: ReadQuery = "", *headers: tuple[str, str | bytes], channel: str = "email") -> Answer:
        """Get the answer to a query, percent-encoded already if it is text."""
        text = query if isinstance(query, str) else urlencode(query, quote_via=quote)
        target = f"{path(channel)}?{text}" if text else path(channel)
        return self.app.request("GET", target, headers=[self.authorization, *headers])

    def feed(self, **query: str) -> list[dict[str, Any]]:
        """Follow all records, page by page."""
        records: list[dict[str, Any]] = []
        while True:
            answer = self.get(query)
            assert answer.status == 200, answer.body
            page = answer.json()
            records += page["items"]
            if not page["has_more"]:
                return records
            query["cursor"] = page["next_cursor"]

    def new_group(self, name: str) -> str:
        """Create another group of the organization, and return its id."""
        return self.app.administer(create_group, org_slug=self.slug, name=name).group_id

    def ago(self, milliseconds: int) -> str:
        """Return the time so long ago, as partners write it."""
        return written(self.clock.now_ms() - milliseconds)

    def stored(self, channel: str = "email") -> Rows:
        """Return all rows of the organization's feed, for comparison."""
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
"""The rows of a feed that was never submitted to or followed."""


def path(channel: str = "email") -> str:
    return f"/api/v1/unsubscribe/{channel}"


def gzipped(body: Any) -> bytes:
    """Return a body as gzip."""
    return gzip.compress(body if isinstance(body, bytes) else json.dumps(body).encode(), mtime=0)


def addresses(answer: Answer) -> list[str]:
    """Return the addresses of the records of a page, in order."""
    assert answer.status == 200, answer.body
    return [record["address"] for record in answer.json()["items"]]


def refusal(answer: Answer) -> dict[str, Any]:
    """Return the code and the extra fields of an error, without its text."""
    fields = dict(answer.json())
    assert fields.pop("message") == fields.pop("error_description") != ""
    return fields


def text_of(answer: Answer) -> str:
    """Return the text of an error."""
    return str(answer.json()["message"])
