"""The token rules, written again word by word from docs/interface.md sections 3 and D2, without regard to speed.

No epochs and no hashes: revoking everything means going through the whole list.
"""

from dataclasses import dataclass, field

from tests.constants import DAY_MS, MINUTE_MS


@dataclass
class NaiveClient:
    """A credential. `secret` is the valid one."""

    client_id: str
    secret: str
    is_active: bool = True
    alarms: int = 0


@dataclass
class NaiveGrant:
    """The tokens of one success of the token endpoint."""

    client: NaiveClient
    access_token: str
    refresh_token: str
    issued_ms: int
    is_rotated: bool = False
    is_revoked: bool = False

    def has_expired(self, now_ms: int) -> bool:
        """Return whether 30 days have passed since the refresh token was issued."""
        return now_ms - self.issued_ms >= 30 * DAY_MS


@dataclass
class NaiveTokens:
    """All credentials and tokens."""

    clients: list[NaiveClient] = field(default_factory=list)
    grants: list[NaiveGrant] = field(default_factory=list)

    def client(self, client_id: str | None, secret: str | None) -> NaiveClient | None:
        """Return the active credential that this id and secret prove."""
        for client in self.clients:
            if client.client_id == client_id and client.secret == secret and client.is_active:
                return client
        return None

    def issue(self, client_id: str | None, secret: str | None) -> str:
        """Return the answer of `client_credentials`; `given` records the pair."""
        return "pair" if self.client(client_id, secret) else "InvalidClient"

    def refresh(self, token: str, client_id: str | None, secret: str | None, now_ms: int) -> tuple[str, bool]:
        """Return the answer of `refresh_token`, and whether it raises the alarm; `given` records the pair."""
        if secret is not None and self.client(client_id, secret) is None:
            return "InvalidClient", False
        for grant in self.grants:
            if grant.refresh_token == token:
                return self._present(grant, client_id, now_ms)
        return "unknown", False

    def given(self, client_id: str, access_token: str, refresh_token: str, now_ms: int) -> None:
        """Record the tokens of a success."""
        (client,) = (client for client in self.clients if client.client_id == client_id)
        self.grants.append(NaiveGrant(client, access_token, refresh_token, now_ms))

    def is_alive(self, access_token: str, now_ms: int) -> bool:
        """Return whether the API accepts this token."""
        return any(
            grant.access_token == access_token
            and not grant.is_revoked
            and grant.client.is_active
            and now_ms - grant.issued_ms < 15 * MINUTE_MS
            for grant in self.grants
        )

    def revoke(self, client: NaiveClient) -> None:
        """Revoke every token of this client, including the rotated ones."""
        for grant in self.grants:
            if grant.client is client:
                grant.is_revoked = True

    def deactivate(self, client: NaiveClient) -> None:
        client.is_active = False
        self.revoke(client)

    def activate(self, client: NaiveClient) -> None:
        client.is_active = True

    def rotate_secret(self, client: NaiveClient, secret: str) -> None:
        client.secret = secret
        self.revoke(client)

    def delete_expired(self, now_ms: int) -> int:
        """Forget what has expired; return the number of grants."""
        kept = [grant for grant in self.grants if not grant.has_expired(now_ms)]
        gone = len(self.grants) - len(kept)
        self.grants = kept
        return gone

    def _present(self, grant: NaiveGrant, client_id: str | None, now_ms: int) -> tuple[str, bool]:
        state = self._state(grant, now_ms)
        if state == "used":
            grant.client.alarms += 1
            self.revoke(grant.client)
        if client_id is not None and client_id != grant.client.client_id:
            return "another", state == "used"
        if state == "pair":
            grant.is_rotated = True
        return state, state == "used"

    def _state(self, grant: NaiveGrant, now_ms: int) -> str:
        if grant.has_expired(now_ms):
            return "expired"
        if grant.is_revoked:
            return "revoked"
        return "used" if grant.is_rotated else "pair"
