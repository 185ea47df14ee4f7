"""The grants that the token endpoint offers: one file each, and one line here."""

from collections.abc import Awaitable, Callable

from stoplist.actor import Actor
from stoplist.oauth.grants import client_credentials, refresh_token
from stoplist.oauth.outcome import Outcome, TokenRequest, TokenStores

Grant = Callable[[Actor, TokenStores, TokenRequest], Awaitable[Outcome]]

GRANTS: dict[str, Grant] = {
    client_credentials.NAME: client_credentials.answer,
    refresh_token.NAME: refresh_token.answer,
}
