"""Which access token a request takes, and where a new one comes from when that is refused or too old.

A refresh token is good once; presented a second time, by whomever, it ends all tokens of its key. What holds here, over
all threads, tasks and processes that share a store, and whatever is killed, cancelled or lost:

    A refresh token is sent only by the holder of the lock, who has just read it from the store without the mark
    `is_presented`, and has written that mark durably before anything leaves. Nothing ever takes the mark off again;
    tokens without it are written only as they come from the service. So it is sent once, or not at all.

Therefore no refresh token is kept outside of the store, not even in memory; a mark that cannot be written means that
nothing is sent; and whatever else happens ends in `client_credentials`, which may be asked for any number of times. No
clock is part of this: one that is wrong costs a request. Source: docs/interface.md section 5, rules 5 to 9.
"""

import logging
from base64 import b64encode
from typing import Annotated
from urllib.parse import quote_plus, urlencode

import msgspec

from stoplist_client.environment import Environment
from stoplist_client.errors import (
    NotUnderstood,
    RateLimited,
    ServerError,
    TemporarilyUnavailable,
    TokenStoreError,
    TransportFailed,
)
from stoplist_client.flows.answers import refusal, understood
from stoplist_client.flows.flow import Answer, Flow, NoAnswer, Send, pause, send
from stoplist_client.flows.retries import LONGEST_WAIT_S, patiently, wait_s, waited
from stoplist_client.redacted import Redacted
from stoplist_client.secret import Secret
from stoplist_client.tokens.tokens import KeyedStore, Printed, Tokens, TokenStore, store_of

SHORTEST_LOCK_WAIT_S = 300.0
_LONG_WAIT_S = 3.0  # from then on whoever waits may want to know what for
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.05

_log = logging.getLogger("stoplist_client")


class Held(Redacted, msgspec.Struct, frozen=True):
    """An access token to send; if it is refused too, a fresh one cannot be helped by asking for another.

    It is fresh if the service gave it out just now, in place of one that it refused or where there was none.
    """

    access_token: str
    is_fresh: bool

    def __repr__(self) -> str:
        return f"Held(is_fresh={self.is_fresh})"


class Renewal:
    """The tokens of one key. Any number of flows may run at once, in any threads.

    `base_url` is the service's address in one fixed spelling. `attempts` are those of one `client_credentials`, and
    `timeout_s` is how long the driver waits for a connection, and for an answer.
    `renew_ahead_s`: renew when an access token has less left; None leaves it to the service to refuse it.
    """

    def __init__(
        self,
        *,
        base_url: str,
        client_id: str,
        client_secret: str | Secret,
        store: TokenStore | KeyedStore,
        environment: Environment,
        attempts: int,
        timeout_s: float = 60.0,
        renew_ahead_s: float | None = None,
    ) -> None:
        self._base_url, self._client_id, self._client_secret = base_url, client_id, Secret(client_secret)
        self._store = store_of(store, base_url, client_id)
        self._world, self._attempts, self._renew_ahead_s = environment, attempts, renew_ahead_s
        self._access: _Access | None = None
        # All that a holder of the lock does, if nothing goes well: a refresh, then each attempt with the secret, every
        # one with a connection and an answer that take their time, and the longest wait after it.
        longest_s = (1 + attempts) * (2 * timeout_s + LONGEST_WAIT_S)
        self._longest_lock_wait_s = max(SHORTEST_LOCK_WAIT_S, longest_s)

    def current(self) -> Flow[Held]:
        """An access token that nobody has refused yet, as far as is known here; asks where there is none."""
        access = self._access or self._stored_access()
        if access is None:
            return (yield from self._renewed(None))
        if self._is_due(access):
            return (yield from self._renewed_ahead(access))
        self._access = access
        return Held(access.token, is_fresh=False)

    def instead_of(self, refused: str) -> Flow[Held]:
        """Another access token than this one, which was refused: one that is held, or else one that is asked for."""
        access = self._access
        if access is not None and access.token != refused:
            return Held(access.token, is_fresh=False)
        return (yield from self._renewed(refused))

    def _renewed_ahead(self, access: "_Access") -> Flow[Held]:
        try:
            access_token = (yield from self._renewed(access.token)).access_token
        except (TransportFailed, RateLimited, ServerError, TemporarilyUnavailable):
            if self._world.now_s() >= access.ends_s:
                raise
            # It is still good: what was meant to come early may come when it is refused.
            access_token = access.token
        # Nobody has refused anything yet: the way over 401 stays open.
        return Held(access_token, is_fresh=False)

    def _renewed(self, refused: str | None) -> Flow[Held]:
        """Another token than `refused`: what somebody else has got meanwhile, else asked for, by one at a time."""
        unlock, waited_s = self._store.try_lock(), 0.0
        while unlock is None:
            if waited_s >= self._longest_lock_wait_s:
                raise TokenStoreError(
                    f"Another worker has been getting tokens for {self._longest_lock_wait_s:.0f} s, which is longer "
                    "than that can take: find out which process holds the lock beside the tokens, and end it."
                )
            # Counted, not measured, so that a clock that is set meanwhile neither ends the wait nor prolongs it.
            waited_before_s, waited_s = waited_s, waited_s + (yield from self._pause_for_lock())
            if waited_before_s < _LONG_WAIT_S <= waited_s:
                _log.info("Waiting for another worker, which is getting tokens", extra={"wait_s": waited_s})
            if held := self._held_by_others(refused):
                return held
            unlock = self._store.try_lock()
        try:
            return self._held_by_others(refused) or (yield from self._asked())
        finally:
            unlock()

    def _pause_for_lock(self) -> Flow[float]:
        seconds = _SHORTEST_PAUSE_S + (_LONGEST_PAUSE_S - _SHORTEST_PAUSE_S) * self._world.jitter()
        yield from pause(seconds)
        return seconds

    def _held_by_others(self, refused: str | None) -> Held | None:
        access = self._stored_access()
        if access is None or access.token == refused:
            # Where tokens could not be stored, another thread of this process may still have got some.
            access = self._access
        if access is None or access.token == refused:
            return None
        self._access = access
        return Held(access.token, is_fresh=False)

    def _asked(self) -> Flow[Held]:
        """New tokens from the service, in answer to the refresh token or else to the secret. The lock is held."""
        tokens = self._stored()
        given = None
        if tokens is not None and self._may_present(tokens) and self._mark(tokens):
            given = yield from self._refreshed(tokens)
        if given is None:
            given = yield from self._new_session()
        self._keep(given)
        return Held(given.access_token, is_fresh=True)

    def _may_present(self, tokens: Tokens) -> bool:
        return not tokens.is_presented and self._world.now_s() < tokens.refresh_ends_s

    def _mark(self, tokens: Tokens) -> bool:
        """Whether it is durably written that the refresh token is presented; if not, it must not be."""
        try:
            self._store.write(msgspec.structs.replace(tokens, is_presented=True))
        except TokenStoreError as failure:
            _log.warning("No refresh, since the tokens cannot be marked: %s", failure)
            return False
        return True

    def _refreshed(self, tokens: Tokens) -> Flow[Tokens | None]:
        """What the service gives for the refresh token, which is sent once; None where it gives nothing usable."""
        asked_at_s = self._world.now_s()
        try:
            answer = yield from send(_token_request(grant_type="refresh_token", refresh_token=tokens.refresh_token))
        except (NoAnswer, NotUnderstood):
            return None
        if answer.status == 429:
            # The budget is one for both grants.
            yield from waited(wait_s(answer, self._world), "the service answered 429")
        if answer.status != 200:
            return None
        try:
            return self._tokens(answer, asked_at_s)
        except NotUnderstood:
            return None

    def _new_session(self) -> Flow[Tokens]:
        """What the service gives for the secret; raises its refusal."""
        asked_at_s = self._world.now_s()
        answer = yield from patiently(self._send_secret, environment=self._world, attempts=self._attempts)
        if answer.status != 200:
            raise refusal(answer)
        return self._tokens(answer, asked_at_s)

    def _send_secret(self) -> Flow[Answer]:
        return send(_token_request(_basic(self._client_id, self._client_secret), grant_type="client_credentials"))

    def _tokens(self, answer: Answer, asked_at_s: float) -> Tokens:
        given = understood(answer, _GIVEN)
        return Tokens(
            base_url=self._base_url,
            client_id=self._client_id,
            access_token=given.access_token,
            access_ends_s=asked_at_s + given.expires_in,
            refresh_token=given.refresh_token,
            refresh_ends_s=asked_at_s + given.refresh_expires_in,
        )

    def _keep(self, tokens: Tokens) -> None:
        """They are stored; failing that the access token alone is kept here, and the refresh token is forgotten."""
        self._access = _Access(tokens.access_token, tokens.access_ends_s)
        try:
            self._store.write(tokens)
        except TokenStoreError as failure:
            _log.warning("The new tokens are used in this process alone, since they cannot be stored: %s", failure)

    def _stored(self) -> Tokens | None:
        tokens = self._store.read()
        if tokens is None or (tokens.base_url, tokens.client_id) != (self._base_url, self._client_id):
            return None
        return tokens

    def _stored_access(self) -> "_Access | None":
        tokens = self._stored()
        return None if tokens is None else _Access(tokens.access_token, tokens.access_ends_s)

    def _is_due(self, access: "_Access") -> bool:
        return self._renew_ahead_s is not None and access.ends_s - self._world.now_s() < self._renew_ahead_s


class _Access(Redacted, msgspec.Struct, frozen=True):
    token: str
    ends_s: float


class _Given(Redacted, msgspec.Struct, frozen=True):
    """Source: docs/interface.md section 2.2."""

    access_token: Printed
    expires_in: Annotated[int, msgspec.Meta(ge=0)]
    refresh_token: Printed
    refresh_expires_in: Annotated[int, msgspec.Meta(ge=0)]


_GIVEN = msgspec.json.Decoder(_Given)


def _token_request(headers: dict[str, str] | None = None, **form: str) -> Send:
    return Send(
        method="POST",
        url="/oauth/token",
        headers={"content-type": "application/x-www-form-urlencoded", **(headers or {})},
        content=urlencode(form).encode(),
    )


def _basic(client_id: str, client_secret: Secret) -> dict[str, str]:
    """Each half is form-encoded first (RFC 6749 section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret.reveal())}"
    return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}
