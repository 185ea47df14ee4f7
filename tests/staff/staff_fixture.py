"""An office: a deployment whose people use the pages, and what they do there, one call an act."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import argon2
import pyotp

from stoplist.actor import ADMINISTER, Actor, Role
from stoplist.db import Database
from stoplist.staff import links, people, sessions, signing_in, two_step
from stoplist.staff.hashing import PARAMETERS, Hashing
from stoplist.staff.model import NewLink, Person, SecondStep, SignedIn, StaffStores
from stoplist.staff.store import find_person
from tests.builders import ADMINISTRATOR, audit_rows, make_organization, on_each_database
from tests.fakes import FakeClock

HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"
PASSWORD = "correct horse battery"
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
    """argon2id that costs nothing, and tells how many passwords were looked into."""

    def __init__(self, parameters: argon2.Parameters = CHEAP, **bounds: int) -> None:
        super().__init__(parameters, **bounds)
        self.with_attempt = 0

    async def is_right(self, password: bytes, password_hash: str | None) -> bool:
        right = await super().is_right(password, password_hash)
        self.with_attempt += 1
        return right


class App(NamedTuple):
    """An app that shows codes, and the recovery codes that its owner wrote down."""

    secret: str
    recovery_codes: list[str]

    def code(self, clock: FakeClock, *, steps: int = 0) -> str:
        """What it shows now, or so many half minutes later."""
        return pyotp.TOTP(self.secret).at(clock.now_ms() // 1000, counter_offset=steps)


class Office:
    """A deployment at the level of its operations."""

    def __init__(self, database: Database, clock: FakeClock | None = None) -> None:
        self.database, self.clock = database, clock or FakeClock()
        self.hashing = CountingHashing()

    @property
    def stores(self) -> StaffStores:
        return StaffStores(self.database, self.clock, ("a key that nobody else has, at all",), self.hashing)

    async def organization(self, slug: str = "acme") -> str:
        return (await make_organization(self.database, self.clock, slug)).slug

    async def invite(self, email: str, *, is_administrator: bool = False, **roles: Role) -> NewLink:
        """Somebody new, who was not in yet."""
        made = await people.create_person(
            ADMINISTRATOR, self.database, self.clock, email=email, is_administrator=is_administrator
        )
        for slug, role in roles.items():
            await people.set_role(ADMINISTRATOR, self.database, self.clock, email=email, org_slug=slug, role=role)
        return made

    async def hire(self, email: str, *, is_administrator: bool = False, **roles: Role) -> Actor:
        """Somebody new, who has chosen a password."""
        made = await self.invite(email, is_administrator=is_administrator, **roles)
        await self.use_link(made.link_token)
        return await self.actor(email)

    async def administrator(self, email: str = "boss@example.org") -> Actor:
        return await self.hire(email, is_administrator=True)

    async def actor(self, email: str) -> Actor:
        """The person as the edge makes an actor of him."""
        person = await self.person(email)
        may = frozenset((ADMINISTER,)) if person.is_administrator else frozenset[str]()
        return Actor(kind="person", id=person.email, may=may, roles=person.roles, source_ip=HERE, request_id="0" * 24)

    async def person(self, email: str) -> Person:
        return await find_person(self.database, email)

    async def use_link(self, link_token: str, password: str = PASSWORD) -> SignedIn | SecondStep:
        return await links.use_link(
            stranger(), self.stores, link_token=link_token, password=password, user_agent=BROWSER
        )

    async def sign_in(self, email: str, password: str = PASSWORD, *, source: str = HERE) -> SignedIn | SecondStep:
        return await signing_in.sign_in(
            stranger(source), self.stores, email=email, password=password, user_agent=BROWSER
        )

    async def session(self, email: str) -> str:
        """The token of a new session of the person, who is asked for no code."""
        signed_in = await self.sign_in(email)
        assert isinstance(signed_in, SignedIn)
        return signed_in.session_token

    async def ticket(self, email: str) -> str:
        """What the right password gets where a code is asked for."""
        answer = await self.sign_in(email)
        assert isinstance(answer, SecondStep)
        return answer.ticket

    async def second_step(self, ticket: str, code: str, *, source: str = HERE) -> SignedIn:
        return await signing_in.second_step(stranger(source), self.stores, ticket=ticket, code=code, user_agent=BROWSER)

    async def set_up_app(self, actor: Actor, password: str = PASSWORD) -> App:
        """The person is asked for codes from now on; the code that the app shows now is used up."""
        secret = two_step.begin(actor.id).secret
        app = App(secret, [])
        codes = await two_step.turn_on(actor, self.stores, secret=secret, code=app.code(self.clock), password=password)
        return App(secret, codes)

    async def is_alive(self, session_token: str) -> bool:
        return await sessions.find_session(self.database, self.clock, session_token) is not None

    async def actions(self) -> list[tuple[str, str]]:
        """The actions in the audit, each with its target."""
        return [(row.action, row.target) for row in await audit_rows(self.database)]


def stranger(source: str = HERE) -> Actor:
    """Somebody at the door."""
    return Actor(kind="person", id="", source_ip=source, request_id="0" * 24)


def in_an_office(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine; it runs on each kind of database, in an office of its own."""

    @functools.wraps(test)
    async def body(database: Database, **given: Any) -> None:
        await test(office=Office(database), **given)

    parameters = [
        parameter if name != "office" else parameter.replace(name="database")
        for name, parameter in inspect.signature(test).parameters.items()
    ]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return on_each_database(body)
