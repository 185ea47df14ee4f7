"""Fixtures for the token rules: one call for each act of a partner or an administrator."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Self

from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.errors import InvalidGrant
from stoplist.limits.limiter import UNKNOWN_PER_MINUTE
from stoplist.limits.memory import MemoryLimiter
from stoplist.oauth import ceilings, credentials
from stoplist.oauth.authentication import PresentedCredentials
from stoplist.oauth.grants import GRANTS
from stoplist.oauth.model import MAX_PER_MINUTE, TokenPair
from stoplist.oauth.outcome import Outcome, TokenRequest, TokenStores
from stoplist.oauth.tokens import delete_expired
from tests.builders import ADMINISTRATOR, Run, find_bearer, make_key, make_organization, migrated, sql
from tests.deployment import Deployment, SharedDatabase
from tests.fakes import FakeClock
from tests.keys import Key

PROGRAM = Actor(kind="client", id="", source_ip="192.0.2.1", request_id="0" * 24)
HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"
NO_CREDENTIALS = PresentedCredentials()

# The rows that tests read directly from the database.
_ALARMS = sql("SELECT * FROM audit WHERE action = 'client.reuse_alarm' AND target = :client_id ORDER BY audit_id")
_EPOCH = sql("SELECT epoch FROM clients WHERE client_id = :client_id")
_PAIRS = sql("SELECT * FROM token_pairs WHERE client_id = :client_id ORDER BY pair_id")
_FORGET_PAIRS = sql("DELETE FROM token_pairs")
_FORGET_AUDIT = sql("DELETE FROM audit")
_FORGET_WHAT_IT_CONCERNS = sql("DELETE FROM audit_organizations")

# Searched in this order, because the text about a reuse also says that everything has been revoked.
_REASONS = {
    "used already": "used",
    "another client": "another",
    "has expired": "expired",
    "has been revoked": "revoked",
    "is unknown": "unknown",
}


class Counted(NamedTuple):
    """The number of requests in each log of section D8 in the last minute."""

    proved: int
    failed: int
    unknown: int


class TokenDeployment(Deployment):
    """A deployment whose partners request tokens."""

    def __init__(self, database: Database, clock: FakeClock, run: Run = asyncio.run) -> None:
        super().__init__(database, clock, run)
        self.limiter = MemoryLimiter(clock)
        self.refresh_chain_days = 0

    @classmethod
    def on(cls, shared: SharedDatabase, clock: FakeClock | None = None) -> Self:
        """Return a deployment without tokens, whose limits have counted nothing yet."""
        deployment = super().on(shared, clock)
        shared.run(deployment.forget_tokens())
        return deployment

    @property
    def stores(self) -> TokenStores:
        return TokenStores(
            database=self.database,
            clock=self.clock,
            limiter=self.limiter,
            refresh_chain_days=self.refresh_chain_days,
        )

    async def new_key(self, *, per_minute: int = MAX_PER_MINUTE) -> Key:
        """Create a credential; without `per_minute` its limit never applies."""
        made = await make_key(self.database, self.clock)
        key = Key(made.credential.client_id, made.client_secret)
        await self.set_ceiling(key, per_minute)
        return key

    async def set_ceiling(self, key: Key, per_minute: int) -> None:
        await ceilings.set_ceilings(
            ADMINISTRATOR,
            self.database,
            self.clock,
            client_id=key.client_id,
            token_per_minute=per_minute,
            api_per_minute=None,
        )

    async def need_secret(self, key: Key, *, is_needed: bool = True) -> None:
        """Set whether a refresh with a token of this key needs its secret."""
        await credentials.update_credential(
            ADMINISTRATOR,
            self.database,
            self.clock,
            client_id=key.client_id,
            changes=credentials.Changes(refresh_needs_secret=is_needed),
        )

    async def issue(self, presented: PresentedCredentials, *, source: str = HERE) -> Outcome:
        """Request the `client_credentials` grant."""
        return await self._ask("client_credentials", presented, "", source)

    async def refresh(
        self, refresh_token: str, presented: PresentedCredentials = NO_CREDENTIALS, *, source: str = HERE
    ) -> Outcome:
        """Request the `refresh_token` grant."""
        return await self._ask("refresh_token", presented, refresh_token, source)

    async def new_pair(self, key: Key) -> TokenPair:
        """Return the pair for valid credentials."""
        return pair_of(await self.issue(key.presented))

    async def is_alive(self, access_token: str) -> bool:
        """Return whether the API would accept it."""
        return await find_bearer(self.database, self.clock, access_token) is not None

    async def are_alive(self, *pairs: TokenPair) -> list[bool]:
        """Return the same for the access token of each pair."""
        return [await self.is_alive(pair.access_token) for pair in pairs]

    async def deactivate(self, key: Key) -> None:
        await credentials.deactivate_credential(ADMINISTRATOR, self.database, self.clock, client_id=key.client_id)

    async def activate(self, key: Key) -> None:
        await credentials.activate_credential(ADMINISTRATOR, self.database, self.clock, client_id=key.client_id)

    async def revoke(self, key: Key) -> None:
        await credentials.revoke_tokens(ADMINISTRATOR, self.database, self.clock, client_id=key.client_id)

    async def rotate_secret(self, key: Key) -> Key:
        """Rotate the secret; return the credential with the new one."""
        made = await credentials.rotate_secret(ADMINISTRATOR, self.database, self.clock, client_id=key.client_id)
        return Key(key.client_id, made.client_secret)

    async def delete_expired(self) -> int:
        return await delete_expired(self.database, self.clock.now_ms())

    async def counted(self, client_id: str) -> Counted:
        """Return the content of the logs, read from the answers to three more requests.

        Call it once, at the end of a test.
        """
        big = MAX_PER_MINUTE
        unknown = await self.limiter.token_unknown(HERE)
        proved = await self.limiter.token_authenticated(client_id, "a source that nothing else comes from", limit=big)
        both = await self.limiter.token_failed(client_id, HERE, limit=big)
        return Counted(
            proved=big - proved.remaining - 1,
            failed=proved.remaining - 1 - both.remaining,
            unknown=UNKNOWN_PER_MINUTE - unknown.remaining - 1,
        )

    async def alarms(self, key: Key) -> list[Any]:
        """Return the audit rows of the alarms raised for this client."""
        return await self.database.all(_ALARMS, client_id=key.client_id)

    async def stored_pairs(self, key: Key) -> list[Any]:
        """Return the rows of this client's tokens, in the order of their issue."""
        return await self.database.all(_PAIRS, client_id=key.client_id)

    async def epoch(self, key: Key) -> int:
        row = await self.database.one(_EPOCH, client_id=key.client_id)
        assert row is not None
        return int(row["epoch"])

    async def forget_tokens(self) -> None:
        """Delete all tokens and audit rows."""
        await self.database.write_one(_FORGET_PAIRS)
        await self.database.write_one(_FORGET_AUDIT)
        await self.database.write_one(_FORGET_WHAT_IT_CONCERNS)

    def forget_requests(self) -> None:
        """Reset the limits."""
        self.limiter = MemoryLimiter(self.clock)

    async def _ask(self, grant_type: str, presented: PresentedCredentials, refresh_token: str, source: str) -> Outcome:
        request = TokenRequest(presented=presented, refresh_token=refresh_token, source=source)
        return await GRANTS[grant_type](PROGRAM, self.stores, request)


@contextlib.asynccontextmanager
async def token_deployment(database_url: str, clock: FakeClock) -> AsyncIterator[TokenDeployment]:
    """Yield a deployment on an empty database, with one organization."""
    async with migrated(database_url) as database:
        await make_organization(database, clock)
        yield TokenDeployment(database, clock)


def pair_of(outcome: Outcome) -> TokenPair:
    """Return the pair of an outcome that must be a success."""
    assert outcome.pair is not None, outcome.error and outcome.error.text
    assert outcome.error is None
    return outcome.pair


def answer_of(outcome: Outcome) -> str:
    """Return `pair`, the state of the refresh token for `invalid_grant`, or the class name of another error."""
    if outcome.error is None:
        pair_of(outcome)
        return "pair"
    assert outcome.pair is None
    if not isinstance(outcome.error, InvalidGrant):
        return type(outcome.error).__name__
    return next(reason for words, reason in _REASONS.items() if words in outcome.error.text)
