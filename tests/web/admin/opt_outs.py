"""Creates organizations and submits opt-outs as a partner, for tests of opt-out pages."""

import itertools
import json
from typing import Any

from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import create_organization
from stoplist.rfc3339 import format_ms
from tests.builders import ADMINISTRATOR
from tests.fakes import FakeClock
from tests.keys import EVERY_PERMISSION, Key
from tests.web.admin.pages import Browser, Pages

_NUMBERS = itertools.count(1)


class PagesPartner:
    """A partner with a key of one organization and every permission."""

    def __init__(self, pages: Pages, slug: str = "acme", *, label: str = "Nightly import") -> None:
        self.pages, self.slug = pages, slug
        self.key: Key = pages.app.new_key(organizations=(slug,), permissions=EVERY_PERMISSION, label=label)
        self._token = pages.app.pair(self.key)["access_token"]

    def submit(self, *items: str | dict[str, Any], channel: str = "email", **target: Any) -> dict[str, Any]:
        """Submit a batch and return the answer; a text item is an opt-out of that address."""
        body = {"items": [{"address": one} if isinstance(one, str) else one for one in items], **target}
        answer = self.pages.app.request(
            "POST",
            f"/api/v1/unsubscribe/{channel}",
            headers=[("authorization", f"Bearer {self._token}"), ("content-type", "application/json")],
            body=json.dumps(body).encode(),
        )
        assert answer.status == 200, answer.body
        result: dict[str, Any] = answer.json()
        return result

    def resubscribe(self, address: str, **target: Any) -> dict[str, Any]:
        """Submit a resubscription that occurred now."""
        now = format_ms(self.pages.app.clock.now_ms())
        return self.submit({"address": address, "status": "resubscribed", "occurred_at": now}, **target)


def clock_of(pages: Pages) -> FakeClock:
    """Return the clock of the application, which tests may move."""
    clock = pages.app.clock
    assert isinstance(clock, FakeClock)
    return clock


def new_organization(pages: Pages, slug: str = "", name: str | None = None) -> PagesPartner:
    """Create an organization with the default group Newsletter; return its partner."""
    slug = slug or f"fresh-{next(_NUMBERS)}"
    pages.administer(create_organization, slug=slug, name=name or slug.title(), default_group="Newsletter")
    return PagesPartner(pages, slug)


def group_id(pages: Pages, name: str, slug: str = "acme") -> str:
    """Return the id of a group by its name."""
    groups = pages.app.run(list_groups(ADMINISTRATOR, pages.app.database, org_slug=slug))
    (found,) = [str(group.group_id) for group in groups if group.name == name]
    return found


def record_of(browser: Browser, address: str) -> str:
    """Search for an address and return the path of its only record."""
    found = browser.post("/unsubscribes", {"address": address})
    (path,) = [link for link in found.links if link.rpartition("/")[2].isdigit()]
    return path
