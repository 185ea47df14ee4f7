"""A deployment whose people use the pages, with one method for each thing that they do there."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import argon2
import pyotp

from stoplist.actor import ADMINISTER, Actor, Role
from stoplist.db import Database
from stoplist.staff import invitations, links, people, sessions, signing_in, two_step
from stoplist.staff.hashing import PARAMETERS, Hashing
from stoplist.staff.model import NewInvitation, NewLink, Person, SecondStep, SignedIn, StaffStores
from stoplist.staff.roles import set_role
from stoplist.staff.store import find_person
from tests.builders import ADMINISTRATOR, audit_rows, make_organization, on_each_database
from tests.deployment import Deployment
from tests.fakes import FakeClock

HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"
PASSWORD = "correct horse battery"
SECRET_KEY = "a key that nobody else has, at all"
BROWSER = "Mozilla/5.0"
CHEAP = argon2.Parameters(
    type=PARAMETERS.type,
    version=PARAMETERS.version,
    salt_len=16,
    hash_len=16,
    time_cost=1,
    memory_cost=8,
    parallelism=1,
)


class CountingHashing(Hashing):
    """argon2id that costs next to nothing and counts the passwords that were checked.

    `meanwhile` happens while a password is checked.
    """

    def __init__(self, parameters: argon2.Parameters = CHEAP, **bounds: int) -> None:
        super().__init__(parameters, **bounds)
        self.verified_count = 0
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def is_correct(self, password: bytes, password_hash: str | None) -> bool:
        is_correct = await super().is_correct(password, password_hash)
        self.verified_count += 1
        if self.meanwhile is not None:
            await self.meanwhile()
        return is_correct


class App(NamedTuple):
    """An authenticator app, and the recovery codes that its owner wrote down."""

    secret: str
    recovery_codes: list[str]

    def code(self, clock: FakeClock, *, steps: int = 0) -> str:
        """Return the code that the app shows now, or `steps` half minutes later."""
        return pyotp.TOTP(self.secret).at(clock.now_ms() // 1000, counter_offset=steps)


class StaffDeployment(Deployment):
    """A deployment whose people use the pages."""

    def __init__(self, database: Database, clock: FakeClock | None = None) -> None:
        super().__init__(database, clock or FakeClock())
        self.hashing = CountingHashing()
        self.secret_keys: tuple[str, ...] = (SECRET_KEY,)

    @property
    def stores(self) -> StaffStores:
        return StaffStores(self.database, self.clock, self.secret_keys, self.hashing)

    async def changes_that_outdate_a_check(self, email: str) -> list[Callable[[], Awaitable[object]]]:
        """Return what may happen while a password is checked: it is set by a link, and the account is disabled."""
        link = await people.new_link(ADMINISTRATOR, self.database, self.clock, email=email)
        return [
            lambda: self.use_link(link.link_token),
            lambda: people.disable_person(ADMINISTRATOR, self.database, self.clock, email=email),
        ]

    async def organization(self, slug: str = "acme") -> str:
        return (await make_organization(self.database, self.clock, slug)).slug

    async def invite(self, email: str, *, is_administrator: bool = False, **roles: Role) -> NewLink:
        """Create a person who has not signed in yet."""
        link = await people.create_person(
            ADMINISTRATOR, self.database, self.clock, email=email, is_administrator=is_administrator
        )
        for slug, role in roles.items():
            await set_role(ADMINISTRATOR, self.database, self.clock, email=email, org_slug=slug, role=role)
        return link

    async def create(self, email: str, *, is_administrator: bool = False, **roles: Role) -> Actor:
        """Create a person who has chosen a password."""
        link = await self.invite(email, is_administrator=is_administrator, **roles)
        await self.use_link(link.link_token)
        return await self.actor(email)

    async def administrator(self, email: str = "boss@example.org") -> Actor:
        return await self.create(email, is_administrator=True)

    async def actor(self, email: str) -> Actor:
        """Return the actor that the web pages make of a signed-in person."""
        person = await self.person(email)
        may = frozenset((ADMINISTER,)) if person.is_administrator else frozenset[str]()
        return Actor(kind="person", id=person.email, may=may, roles=person.roles, source_ip=HERE, request_id="0" * 24)

    async def person(self, email: str) -> Person:
        return await find_person(self.database, email)

    async def use_link(self, link_token: str, password: str = PASSWORD) -> SignedIn | SecondStep:
        return await links.use_link(
            stranger(), self.stores, link_token=link_token, password=password, user_agent=BROWSER
        )

    async def offer(self, admin: Actor, email: str, org_slug: str = "acme", role: Role = "viewer") -> NewInvitation:
        """Invite an address to the organization."""
        return await invitations.invite(admin, self.database, self.clock, email=email, org_slug=org_slug, role=role)

    async def accept_by_link(self, token: str, password: str = PASSWORD) -> SignedIn:
        return await invitations.accept_by_link(
            stranger(), self.stores, token=token, password=password, user_agent=BROWSER
        )

    async def sign_in(self, email: str, password: str = PASSWORD, *, source: str = HERE) -> SignedIn | SecondStep:
        return await signing_in.sign_in(
            stranger(source), self.stores, email=email, password=password, user_agent=BROWSER
        )

    async def session(self, email: str) -> str:
        """Sign a person in without two-step sign-in, and return the session's token."""
        signed_in = await self.sign_in(email)
        assert isinstance(signed_in, SignedIn)
        return signed_in.session_token

    async def ticket(self, email: str) -> str:
        """Enter the password of a person with two-step sign-in, and return the ticket."""
        answer = await self.sign_in(email)
        assert isinstance(answer, SecondStep)
        return answer.ticket

    async def second_step(self, ticket: str, code: str, *, source: str = HERE) -> SignedIn:
        return await signing_in.second_step(stranger(source), self.stores, ticket=ticket, code=code, user_agent=BROWSER)

    async def set_up_app(self, actor: Actor, password: str = PASSWORD) -> App:
        """Turn two-step sign-in on. The code that the app shows now is used up."""
        secret = two_step.begin(actor.id).secret
        app = App(secret, [])
        codes = await two_step.turn_on(actor, self.stores, secret=secret, code=app.code(self.clock), password=password)
        return App(secret, codes)

    async def is_alive(self, session_token: str) -> bool:
        return await sessions.find_session(self.database, self.clock, session_token) is not None

    async def actions(self) -> list[tuple[str, str]]:
        """Return the actions in the audit, each with its target."""
        return [(row.action, row.target) for row in await audit_rows(self.database)]


def stranger(source: str = HERE) -> Actor:
    """Return an actor who has not signed in."""
    return Actor(kind="person", id="", source_ip=source, request_id="0" * 24)


def with_staff(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine test on each kind of database, with a `StaffFixture` of its own as `staff`."""

    @functools.wraps(test)
    async def body(database: Database, **given: Any) -> None:
        await test(staff=StaffDeployment(database), **given)

    parameters = [
        parameter if name != "staff" else parameter.replace(name="database")
        for name, parameter in inspect.signature(test).parameters.items()
    ]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return on_each_database(body)
