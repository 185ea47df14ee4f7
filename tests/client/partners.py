"""Partners of a real server: an organization with two groups and a key each, and clients of both kinds.

A test with the fixture `open_client` runs twice: with Client, and with AsyncClient behind a synchronous interface.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from stoplist_client import AsyncChanges, AsyncClient, Client, LookedUp, Page, Record, Submitted

from stoplist.clock import Clock
from stoplist.organizations.groups import create_group
from tests.builders import ADMINISTRATOR, make_key, make_organization, opened
from tests.constants import HIGH_LIMIT
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import EVERY_PERMISSION, Key

T = TypeVar("T")


class Service(NamedTuple):
    """A running server and the installation with its database."""

    installation: Installation
    server: RunningServer

    @property
    def base_url(self) -> str:
        return self.server.base_url

    @property
    def ca_file(self) -> str:
        return str(self.server.ca)

    def new_partner(
        self,
        org_slug: str,
        *,
        permissions: frozenset[str] = EVERY_PERMISSION,
        per_minute: int = HIGH_LIMIT,
        has_default_group: bool = True,
    ) -> "Partner":
        """Create an organization with a default group and another one, and a key with these limits."""
        return asyncio.run(_new_partner(self, org_slug, permissions, per_minute, has_default_group))


class Partner(NamedTuple):
    """Everything that a partner is given."""

    service: Service
    org_slug: str
    group_id: str
    other_group_id: str
    key: Key

    @property
    def access(self) -> dict[str, Any]:
        """The arguments of a client."""
        return {
            "base_url": self.service.base_url,
            "client_id": self.key.client_id,
            "client_secret": self.key.client_secret,
            "ca_file": self.service.ca_file,
        }

    def client(self, **options: Any) -> Client:
        """Return a client of this partner. The caller closes it."""
        return Client(**(self.access | options))


class BlockingElements(Generic[T]):
    """An asynchronous iterator with the interface of an ordinary one."""

    def __init__(self, runner: asyncio.Runner, elements: AsyncIterator[T]) -> None:
        self._runner, self._elements = runner, elements

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._runner.run(_next(self._elements))
        except StopAsyncIteration:
            raise StopIteration from None


class BlockingChanges(BlockingElements[Record]):
    """AsyncChanges with the interface of Changes."""

    def __init__(self, runner: asyncio.Runner, changes: AsyncChanges) -> None:
        super().__init__(runner, aiter(changes))
        self._changes = changes

    @property
    def cursor(self) -> str | None:
        return self._changes.cursor

    def pages(self) -> Iterator[Page]:
        return BlockingElements(self._runner, self._changes.pages())


class BlockingAsyncClient:
    """An AsyncClient with the interface of Client and its own event loop."""

    def __init__(self, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.client = AsyncClient(**options)

    def unsubscribe(self, *arguments: Any, **options: Any) -> Submitted:
        return self.runner.run(self.client.unsubscribe(*arguments, **options))

    def resubscribe(self, *arguments: Any, **options: Any) -> Submitted:
        return self.runner.run(self.client.resubscribe(*arguments, **options))

    def look_up(self, *arguments: Any, **options: Any) -> Iterator[LookedUp]:
        return BlockingElements(self.runner, aiter(self.client.look_up(*arguments, **options)))

    def changes(self, *arguments: Any, **options: Any) -> BlockingChanges:
        return BlockingChanges(self.runner, self.client.changes(*arguments, **options))

    def close(self) -> None:
        self.runner.run(self.client.aclose())

    def __repr__(self) -> str:
        return repr(self.client)


AnyClient = Client | BlockingAsyncClient
Opener = Callable[..., Any]  # of a client class; Any, so that one text of a test fits both


@contextmanager
def no_timeout(client: AnyClient) -> Iterator[None]:
    """Lift the client's `timeout_s` within this block, for busy machines."""
    core: Any = client.client if isinstance(client, BlockingAsyncClient) else client
    http = core._driver._connections.get()
    told, http.timeout = http.timeout, None
    try:
        yield
    finally:
        http.timeout = told


async def _next(elements: AsyncIterator[T]) -> T:
    return await anext(elements)


async def _new_partner(
    service: Service, org_slug: str, permissions: frozenset[str], per_minute: int, has_default_group: bool
) -> Partner:
    clock = Clock()
    async with opened(service.installation.database_url) as database:
        await make_organization(database, clock, org_slug)
        group, other = [
            await create_group(ADMINISTRATOR, database, clock, org_slug=org_slug, name=name, is_default=is_default)
            for name, is_default in (("Newsletter", has_default_group), ("Reminders", False))
        ]
        limits = {"token_per_minute": per_minute, "api_per_minute": per_minute}
        made = await make_key(database, clock, org_slug, label=org_slug, permissions=permissions, **limits)
    key = Key(made.credential.client_id, made.client_secret)
    return Partner(service, org_slug, group.group_id, other.group_id, key)
