"""What partners and administrators do, one call an act: the words that the tests of the token rules are written in."""

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.errors import InvalidGrant
from stoplist.limits.limiter import UNKNOWN_PER_MINUTE
from stoplist.limits.memory import MemoryLimiter
from stoplist.oauth import credentials
from stoplist.oauth.authentication import PresentedCredentials
from stoplist.oauth.bearer import find_bearer
from stoplist.oauth.grants import GRANTS
from stoplist.oauth.model import MAX_PER_MINUTE, TokenPair
from stoplist.oauth.outcome import Outcome, TokenRequest, TokenStores
from stoplist.oauth.tokens import delete_expired
from tests.builders import ADMINISTRATOR, in_the_loop_of, make_key, make_organization, migrated, sql
from tests.fakes import FakeClock

PROGRAM = Actor(kind="client", id="", source_ip="192.0.2.1", request_id="0" * 24)
HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"
NOTHING = PresentedCredentials()

# What the tests look at behind the product's back: which rows there are.
_ALARMS = sql("SELECT * FROM audit WHERE action = 'client.reuse_alarm' AND target = :client_id ORDER BY audit_id")
_EPOCH = sql("SELECT epoch FROM clients WHERE client_id = :client_id")
_PAIRS = sql("SELECT * FROM token_pairs WHERE client_id = :client_id ORDER BY pair_id")
_FORGET_PAIRS = sql("DELETE FROM token_pairs")
_FORGET_AUDIT = sql("DELETE FROM audit")
_FORGET_WHAT_IT_CONCERNS = sql("DELETE FROM audit_organizations")

# Looked for in this order: the text about a reuse says, too, that everything has been revoked.
_REASONS = {
    "used already": "used",
    "another client": "another",
    "has expired": "expired",
    "has been revoked": "revoked",
    "is unknown": "unknown",
}


class Key(NamedTuple):
    """A credential as its owner has it."""

    client_id: str
    client_secret: str

    @property
    def shown(self) -> PresentedCredentials:
        """The right credentials, sent with a request."""
        return PresentedCredentials(client_id=self.client_id, client_secret=self.client_secret)

    @property
    def named(self) -> PresentedCredentials:
        """The `client_id` alone."""
        return PresentedCredentials(client_id=self.client_id)


class Counted(NamedTuple):
    """How many requests each log of section D8 has accepted in the last minute."""

    proved: int
    failed: int
    unknown: int


class Service:
    """A deployment, at the level of its operations."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        self.database = database
        self.clock = clock
        self.limiter = MemoryLimiter(clock)

    @property
    def stores(self) -> TokenStores:
        return TokenStores(database=self.database, clock=self.clock, limiter=self.limiter)

    async def new_key(self, *, per_minute: int = MAX_PER_MINUTE) -> Key:
        """A new credential; without `per_minute` no limit is in a test's way."""
        made = await make_key(self.database, self.clock)
        key = Key(made.credential.client_id, made.client_secret)
        await self.set_ceiling(key, per_minute)
        return key

    async def set_ceiling(self, key: Key, per_minute: int) -> None:
        await credentials.set_ceilings(
            ADMINISTRATOR,
            self.database,
            self.clock,
            client_id=key.client_id,
            token_per_minute=per_minute,
            api_per_minute=None,
        )

    async def issue(self, presented: PresentedCredentials, *, source: str = HERE) -> Outcome:
        """A request for the `client_credentials` grant."""
        return await self._ask("client_credentials", presented, "", source)

    async def refresh(
        self, refresh_token: str, presented: PresentedCredentials = NOTHING, *, source: str = HERE
    ) -> Outcome:
        """A request for the `refresh_token` grant."""
        return await self._ask("refresh_token", presented, refresh_token, source)

    async def new_pair(self, key: Key) -> TokenPair:
        """The pair that the right credentials get."""
        return pair_of(await self.issue(key.shown))

    async def is_alive(self, access_token: str) -> bool:
        """Whether the API would answer a request with it."""
        return await find_bearer(self.database, self.clock, access_token) is not None

    async def are_alive(self, *pairs: TokenPair) -> list[bool]:
        """The same for the access token of each pair."""
        return [await self.is_alive(pair.access_token) for pair in pairs]

    async def deactivate(self, key: Key) -> None:
        await credentials.deactivate_credential(ADMINISTRATOR, self.database, self.clock, client_id=key.client_id)

    async def activate(self, key: Key) -> None:
        await credentials.activate_credential(ADMINISTRATOR, self.database, self.clock, client_id=key.client_id)

    async def revoke(self, key: Key) -> None:
        await credentials.revoke_tokens(ADMINISTRATOR, self.database, self.clock, client_id=key.client_id)

    async def rotate_secret(self, key: Key) -> Key:
        """The credential with its new secret."""
        made = await credentials.rotate_secret(ADMINISTRATOR, self.database, self.clock, client_id=key.client_id)
        return Key(key.client_id, made.client_secret)

    async def delete_expired(self) -> int:
        return await delete_expired(self.database, self.clock.now_ms())

    async def counted(self, client_id: str, *, source: str = HERE) -> Counted:
        """What the logs hold, read off the answers to three more requests: ask once, at the end of a test."""
        big = MAX_PER_MINUTE
        unknown = await self.limiter.token_unknown(source)
        proved = await self.limiter.token_authenticated(client_id, "a source that nothing else comes from", limit=big)
        both = await self.limiter.token_failed(client_id, source, limit=big)
        return Counted(
            proved=big - proved.remaining - 1,
            failed=proved.remaining - 1 - both.remaining,
            unknown=UNKNOWN_PER_MINUTE - unknown.remaining - 1,
        )

    async def alarms(self, key: Key) -> list[Any]:
        """The audit rows of the alarms raised for this client."""
        return await self.database.all(_ALARMS, client_id=key.client_id)

    async def stored_pairs(self, key: Key) -> list[Any]:
        """The rows of this client's tokens, in the order of their issue."""
        return await self.database.all(_PAIRS, client_id=key.client_id)

    async def epoch(self, key: Key) -> int:
        row = await self.database.one(_EPOCH, client_id=key.client_id)
        assert row is not None
        return int(row["epoch"])

    async def forget_tokens(self) -> None:
        """No tokens and no audit rows are left of whatever was before."""
        await self.database.write_one(_FORGET_PAIRS)
        await self.database.write_one(_FORGET_AUDIT)
        await self.database.write_one(_FORGET_WHAT_IT_CONCERNS)

    def forget_requests(self) -> None:
        """The limits have counted nothing yet."""
        self.limiter = MemoryLimiter(self.clock)

    async def _ask(self, grant_type: str, presented: PresentedCredentials, refresh_token: str, source: str) -> Outcome:
        request = TokenRequest(presented=presented, refresh_token=refresh_token, source=source)
        return await GRANTS[grant_type](PROGRAM, self.stores, request)


@contextlib.asynccontextmanager
async def deployed(database_url: str, clock: FakeClock) -> AsyncIterator[Service]:
    """A service on an empty database, with one organization."""
    async with migrated(database_url) as database:
        await make_organization(database, clock)
        yield Service(database, clock)


def pair_of(outcome: Outcome) -> TokenPair:
    """The pair of an outcome that must be a success."""
    assert outcome.pair is not None, outcome.error and outcome.error.text
    assert outcome.error is None
    return outcome.pair


def answer_of(outcome: Outcome) -> str:
    """`pair`; which refresh token it was, for `invalid_grant`; the name of the error's class for any other."""
    if outcome.error is None:
        pair_of(outcome)
        return "pair"
    assert outcome.pair is None
    if not isinstance(outcome.error, InvalidGrant):
        return type(outcome.error).__name__
    return next(reason for words, reason in _REASONS.items() if words in outcome.error.text)


class InLoop(Service):
    """A service and the loop that it lives in: `run` runs the loop until a coroutine has finished."""

    def __init__(self, database: Database, clock: FakeClock, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        super().__init__(database, clock)
        self.run = run


class Deployment(NamedTuple):
    """A service that stays while several tests, or the examples of one, have their turn."""

    run: Callable[[Coroutine[Any, Any, Any]], Any]
    database: Database

    def service(self, clock: FakeClock | None = None) -> InLoop:
        """It without a token, at a moment of its own, with limits that have counted nothing yet."""
        service = InLoop(self.database, clock or FakeClock(), self.run)
        self.run(service.forget_tokens())
        return service


in_loop = in_the_loop_of("service")
