"""Provides access tokens, and renews them when they are refused or too old.

A refresh token can be used once. If anybody presents it a second time, the service ends all tokens of its key. This
invariant holds over all threads, tasks and processes that share a store, even if they are killed or cancelled:

    A refresh token is sent only by the holder of the lock, who has just read it from the store without the mark
    `is_presented`, and has durably written that mark before sending. The mark is never removed; tokens without it are
    written only as they come from the service. So a refresh token is sent once or not at all.

Therefore no refresh token is kept outside of the store, not even in memory. If the mark cannot be written, the refresh
token is not sent. Every other failure leads to `client_credentials`, which may be repeated. No clock is involved: a
wrong clock costs one request. Source: docs/interface.md section 5, rules 5 to 9.
"""

import hashlib
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
from stoplist_client.flows.answers import decode_answer, refusal
from stoplist_client.flows.flow import Answer, Flow, NoAnswer, Send, pause, send
from stoplist_client.flows.retries import MAX_WAIT_S, wait_and_log, wait_s, with_retries
from stoplist_client.redacted import Redacted
from stoplist_client.secret import Secret
from stoplist_client.tokens.tokens import KeyedStore, Printed, Tokens, TokenStore, store_for

MIN_LOCK_WAIT_S = 300.0
_LONG_WAIT_S = 3.0  # after this wait, the reason is logged
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.02, 0.05

_log = logging.getLogger("stoplist_client")


class HeldToken(Redacted, msgspec.Struct, frozen=True):
    """An access token to send.

    It is fresh if the service has just issued it to replace a refused or missing one. If a fresh token is refused too,
    requesting another one does not help.
    """

    access_token: str
    is_fresh: bool

    def __repr__(self) -> str:
        return f"HeldToken(is_fresh={self.is_fresh})"


class Renewal:
    """The tokens of one key. Any number of flows may run at once, in any threads.

    `base_url` is the normalized address of the service. `attempts` applies to one `client_credentials` request, and
    `total_s` is the driver's limit for a request. An access token that expires within
    `renew_ahead_s` is renewed; None waits until the service refuses it.
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
        total_s: float = 300.0,
        renew_ahead_s: float | None = None,
    ) -> None:
        self._base_url, self._client_id, self._client_secret = base_url, client_id, Secret(client_secret)
        self._store = store_for(store, base_url, client_id)
        self._environment, self._attempts, self._renew_ahead_s = environment, attempts, renew_ahead_s
        self._access: _Access | None = None
        # A mistyped secret must be noticed although tokens are stored. One that was right may since have been rotated.
        self._secret_hash, self._is_secret_known = _hash(self._client_secret), False
        # Some keys refresh with their secret alone. The first refusal tells.
        self._refresh_needs_secret = False
        # The longest time the lock is held: a refresh and each attempt with the secret, each with its longest wait.
        longest_s = (1 + attempts) * (total_s + MAX_WAIT_S)
        self._longest_lock_wait_s = max(MIN_LOCK_WAIT_S, longest_s)

    def current_token(self) -> Flow[HeldToken]:
        """Return an access token that was not refused as far as this client knows; request one if there is none."""
        access = self._access or self._stored_access()
        if access is None:
            return (yield from self._renew(None))
        if self._is_due(access):
            return (yield from self._renew_ahead(access))
        self._access = access
        return HeldToken(access.token, is_fresh=False)

    def replace_refused(self, refused: str) -> Flow[HeldToken]:
        """Return another access token than this refused one: a held one, or else a new one."""
        access = self._access
        if access is not None and access.token != refused:
            return HeldToken(access.token, is_fresh=False)
        return (yield from self._renew(refused))

    def _renew_ahead(self, access: "_Access") -> Flow[HeldToken]:
        try:
            access_token = (yield from self._renew(access.token)).access_token
        except (TransportFailed, RateLimited, ServerError, TemporarilyUnavailable):
            if self._environment.now_s() >= access.ends_s:
                raise
            # The token is still valid, and can be renewed when it is refused.
            access_token = access.token
        # No token was refused, so a 401 may still lead to a renewal.
        return HeldToken(access_token, is_fresh=False)

    def _renew(self, refused: str | None) -> Flow[HeldToken]:
        """Return another token than `refused`: one that another worker got meanwhile, or else a new one.

        Only one worker at a time requests tokens.
        """
        unlock, waited_s = self._store.try_lock(), 0.0
        while unlock is None:
            if waited_s >= self._longest_lock_wait_s:
                raise TokenStoreError(
                    f"Another worker has held the lock of the tokens for {self._longest_lock_wait_s:.0f} s, which is "
                    "longer than a renewal can take: find the process that holds the lock file beside the tokens, and "
                    "end it."
                )
            # The wait is added up, not measured, so that setting the clock neither ends nor prolongs it.
            waited_before_s, waited_s = waited_s, waited_s + (yield from self._pause_for_lock())
            if waited_before_s < _LONG_WAIT_S <= waited_s:
                _log.info("Waiting for another worker, which is renewing the tokens", extra={"wait_s": waited_s})
            if held := self._token_of_others(refused):
                return held
            unlock = self._store.try_lock()
        try:
            return self._token_of_others(refused) or (yield from self._request_tokens())
        finally:
            unlock()

    def _pause_for_lock(self) -> Flow[float]:
        seconds = _MIN_PAUSE_S + (_MAX_PAUSE_S - _MIN_PAUSE_S) * self._environment.jitter()
        yield from pause(seconds)
        return seconds

    def _token_of_others(self, refused: str | None) -> HeldToken | None:
        access = self._stored_access()
        if access is None or access.token == refused:
            # If tokens could not be stored, another thread of this process may have new ones in memory.
            access = self._access
        if access is None or access.token == refused:
            return None
        self._access = access
        return HeldToken(access.token, is_fresh=False)

    def _request_tokens(self) -> Flow[HeldToken]:
        """Request new tokens with the refresh token, or else with the secret. The caller holds the lock."""
        tokens = self._stored()
        new_tokens = None
        if tokens is not None and self._may_present(tokens) and self._mark(tokens):
            new_tokens = yield from self._refresh(tokens)
        if new_tokens is None:
            new_tokens = yield from self._new_session()
        self._keep(new_tokens)
        return HeldToken(new_tokens.access_token, is_fresh=True)

    def _may_present(self, tokens: Tokens) -> bool:
        return not tokens.is_presented and self._environment.now_s() < tokens.refresh_ends_s

    def _mark(self, tokens: Tokens) -> bool:
        """Mark the refresh token as presented, durably. If this returns False, it must not be sent."""
        try:
            self._store.write(msgspec.structs.replace(tokens, is_presented=True))
        except TokenStoreError as failure:
            _log.warning("The tokens are not refreshed, since they cannot be marked: %s", failure)
            return False
        return True

    def _refresh(self, tokens: Tokens) -> Flow[Tokens | None]:
        """Send the refresh token once, and return the new tokens, or None if the answer has none."""
        asked_at_s = self._environment.now_s()
        headers = _basic(self._client_id, self._client_secret) if self._refresh_needs_secret else None
        request = _token_request(headers, grant_type="refresh_token", refresh_token=tokens.refresh_token)
        try:
            answer = yield from send(request)
        except (NoAnswer, NotUnderstood):
            return None
        if answer.status == 429:
            # Both grants share one rate limit.
            yield from wait_and_log(wait_s(answer, self._environment), "the service answered 429")
        if answer.status != 200:
            self._refresh_needs_secret = self._refresh_needs_secret or answer.status == 401
            return None
        try:
            return self._tokens(answer, asked_at_s, tokens.secret_hash)
        except NotUnderstood:
            return None

    def _new_session(self) -> Flow[Tokens]:
        """Request tokens with the secret. Raises the service's refusal."""
        asked_at_s = self._environment.now_s()
        answer = yield from with_retries(self._send_secret, environment=self._environment, attempts=self._attempts)
        if answer.status != 200:
            raise refusal(answer)
        self._is_secret_known = True
        return self._tokens(answer, asked_at_s, self._secret_hash)

    def _send_secret(self) -> Flow[Answer]:
        return send(_token_request(_basic(self._client_id, self._client_secret), grant_type="client_credentials"))

    def _tokens(self, answer: Answer, asked_at_s: float, secret_hash: str | None) -> Tokens:
        body = decode_answer(answer, _TOKEN_BODY)
        return Tokens(
            base_url=self._base_url,
            client_id=self._client_id,
            access_token=body.access_token,
            access_ends_s=asked_at_s + body.expires_in,
            refresh_token=body.refresh_token,
            refresh_ends_s=asked_at_s + body.refresh_expires_in,
            secret_hash=secret_hash,
        )

    def _keep(self, tokens: Tokens) -> None:
        """Store the tokens. If that fails, keep the access token in memory, and drop the refresh token."""
        self._access = _Access(tokens.access_token, tokens.access_ends_s)
        try:
            self._store.write(tokens)
        except TokenStoreError as failure:
            _log.warning("The new tokens are used in this process only, since they cannot be stored: %s", failure)

    def _stored(self) -> Tokens | None:
        tokens = self._store.read()
        if tokens is None or (tokens.base_url, tokens.client_id) != (self._base_url, self._client_id):
            return None
        if tokens.secret_hash == self._secret_hash:
            self._is_secret_known = True
        return tokens if self._is_secret_known or tokens.secret_hash is None else None

    def _stored_access(self) -> "_Access | None":
        tokens = self._stored()
        return None if tokens is None else _Access(tokens.access_token, tokens.access_ends_s)

    def _is_due(self, access: "_Access") -> bool:
        return self._renew_ahead_s is not None and access.ends_s - self._environment.now_s() < self._renew_ahead_s


class _Access(Redacted, msgspec.Struct, frozen=True):
    token: str
    ends_s: float


# A century. Sums of times stay within what floats and dates can hold.
_MAX_LIFETIME_S = 100 * 366 * 86_400


class _TokenBody(Redacted, msgspec.Struct, frozen=True):
    """Source: docs/interface.md section 2.2."""

    access_token: Printed
    expires_in: Annotated[int, msgspec.Meta(ge=0, le=_MAX_LIFETIME_S)]
    refresh_token: Printed
    refresh_expires_in: Annotated[int, msgspec.Meta(ge=0, le=_MAX_LIFETIME_S)]


_TOKEN_BODY = msgspec.json.Decoder(_TokenBody)


def _token_request(headers: dict[str, str] | None = None, **form: str) -> Send:
    return Send(
        method="POST",
        url="/oauth/token",
        headers={"content-type": "application/x-www-form-urlencoded", **(headers or {})},
        content=urlencode(form).encode(),
    )


def _hash(client_secret: Secret) -> str:
    return hashlib.sha256(client_secret.reveal().encode("utf-8", "replace")).hexdigest()[:16]


def _basic(client_id: str, client_secret: Secret) -> dict[str, str]:
    """Return the Basic header. Each half is form-encoded first (RFC 6749 section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret.reveal())}"
    return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}
