"""A sender who makes links, the people who click them, and what is stored afterwards."""

import itertools
import re
from html.parser import HTMLParser
from typing import Any, Self
from urllib.parse import urlencode

from stoplist_addresses.link_tokens import LinkContent, LinkKey

from stoplist.clock import Clock
from stoplist.links.keys import create_link_key
from stoplist.organizations.groups import create_group
from stoplist.unsubscribes.channel import CHANNELS, feed_id
from tests.builders import ADMINISTRATOR, make_organization, sql
from tests.web.application import Answer, Application

SECRET_KEYS = ("k" * 32,)
ANN = "ann@example.com"
ONE_CLICK = b"List-Unsubscribe=One-Click"
FORM = "application/x-www-form-urlencoded"

_NUMBERS = itertools.count(1)


class Sender:
    """An organization with a group, a link key and an application."""

    def __init__(self, app: Application, slug: str, organization_id: int, group_id: str, link_key: str) -> None:
        self.app, self.slug, self.organization_id = app, slug, organization_id
        self.group_id, self.link_key = group_id, link_key
        self.key = LinkKey(link_key)

    @classmethod
    def on(cls, app: Application) -> Self:
        """Return a new organization's sender."""
        slug = f"sender-{next(_NUMBERS)}"
        made = app.run(make_organization(app.database, app.clock, slug))
        group = app.run(create_group(ADMINISTRATOR, app.database, app.clock, org_slug=slug, name="Märzbrief <1>"))
        key = app.run(create_link_key(ADMINISTRATOR, app.database, app.clock, secret_keys=SECRET_KEYS, org_slug=slug))
        return cls(app, slug, made.organization_id, group.group_id, key.link_key)

    @property
    def clock(self) -> Clock:
        return self.app.clock

    def link(
        self, address: str = ANN, *, channel: str = "email", group_id: str | None = None, source: str | None = None
    ) -> str:
        """Return the path of a link, for all groups by default."""
        return f"/u/{self.key.token(LinkContent(channel, group_id, address, source))}"

    def get(self, path: str, *, language: str = "en", method: str = "GET", **options: Any) -> Answer:
        """Return the answer to somebody who opens the link."""
        return self.app.request(method, path, headers=[("accept-language", language)], **options)

    def post(
        self, path: str, body: bytes | dict[str, str] = ONE_CLICK, *, content_type: str = FORM, **options: Any
    ) -> Answer:
        """Return the answer to a form, or by default to a one-click opt-out."""
        content = body if isinstance(body, bytes) else urlencode(body).encode()
        return self.app.request("POST", path, headers=[("content-type", content_type)], body=content, **options)

    def records(self, channel: str = "email") -> list[tuple[str, int, str, str, str | None]]:
        """Return address, group number, status, reason and source of each record, in the order of changes."""
        return [
            (row["address"], row["group_no"], row["status"], row["reason"], row["source"])
            for row in self.rows("unsubscribes", "seq", channel)
        ]

    def rows(self, table: str, order: str, channel: str = "email") -> list[dict[str, Any]]:
        """Return the stored rows of the feed."""
        number = feed_id(self.organization_id, CHANNELS[channel])
        query = sql(f"SELECT * FROM {table} WHERE feed_id = :feed_id ORDER BY {order}")  # noqa: S608
        return [dict(row) for row in self.app.run(self.app.database.all(query, feed_id=number))]

    def submissions(self, channel: str = "email") -> list[dict[str, Any]]:
        return self.rows("submissions", "received_ms", channel)


def fields_of(answer: Answer, name: str) -> list[str]:
    """Return the values of the fields and buttons of this name on a page."""
    found: list[str] = []

    class Fields(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            values = dict(attributes)
            if tag in ("input", "button") and values.get("name") == name:
                found.append(values.get("value") or "")

    Fields().feed(answer.body.decode())
    return found


def text_of(answer: Answer) -> str:
    """Return the text of the body of a page."""
    content = re.sub(r"<style>.*?</style>", "", answer.body.decode(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", content).split())
