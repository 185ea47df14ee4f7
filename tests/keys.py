"""The credentials of an API key, and the forms in which a partner presents them."""

import base64
from typing import NamedTuple

from stoplist.oauth.authentication import PresentedCredentials
from stoplist.oauth.model import PERMISSIONS

EVERY_PERMISSION = frozenset(PERMISSIONS)
# The form of a request for a token pair.
CLIENT_CREDENTIALS = {"grant_type": "client_credentials"}


class Key(NamedTuple):
    """The credentials of a key. httpx takes them as they are for HTTP Basic."""

    client_id: str
    client_secret: str

    @property
    def basic(self) -> tuple[str, bytes]:
        """Return the header of HTTP Basic authentication."""
        return basic(self.client_id, self.client_secret)

    @property
    def in_body(self) -> dict[str, str]:
        """Return the fields of a form."""
        return self._asdict()

    @property
    def presented(self) -> PresentedCredentials:
        """Return the credentials as an operation gets them."""
        return PresentedCredentials(client_id=self.client_id, client_secret=self.client_secret)

    @property
    def id_alone(self) -> PresentedCredentials:
        """Return the `client_id` without its secret."""
        return PresentedCredentials(client_id=self.client_id)


def basic(client_id: str, secret: str, *, scheme: str = "Basic") -> tuple[str, bytes]:
    """Return the header of HTTP Basic authentication."""
    return basic_of(f"{client_id}:{secret}".encode(), scheme=scheme)


def basic_of(pair: bytes, *, scheme: str = "Basic") -> tuple[str, bytes]:
    """Return the header of HTTP Basic authentication around any bytes."""
    return "authorization", f"{scheme} ".encode() + base64.b64encode(pair)
