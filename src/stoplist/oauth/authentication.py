"""Client authentication: `Authorization: Basic`, or parameters in the body (RFC 6749 section 2.3.1).

Source: docs/interface.md sections 5 and D2 (Client authentication).
"""

import base64
import binascii
import hmac
import re
from urllib.parse import unquote_to_bytes

import msgspec

from stoplist import ids
from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.errors import BadRequest
from stoplist.oauth.model import TOKEN_PER_MINUTE, Client

_FIND = load_queries(__package__)["find_client"]
_CLIENT_ID = re.compile(ids.CLIENT_ID + "[0-9A-Za-z]{22}")
_NO_HASH = bytes(32)


class PresentedCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """The client credentials in a request. `client_id` alone only names the client."""

    client_id: str | None = None
    client_secret: str | None = None
    is_malformed: bool = False

    @property
    def has_credentials(self) -> bool:
        return self.is_malformed or self.client_secret is not None


def read_presented(
    authorization: bytes | None, *, client_id: str | None, client_secret: str | None
) -> PresentedCredentials:
    """Return the credentials from either place as one; `client_id` and `client_secret` are those of the body.

    An unusable header is not an error here but a failed authentication. Raise BadRequest if header and body contradict
    each other.
    """
    if authorization is None:
        return PresentedCredentials(client_id=client_id, client_secret=client_secret)
    if client_secret is not None and _is_basic(authorization):
        raise BadRequest("Send the client secret once: in the Authorization header or in the body, not in both.")
    pair = parse_basic(authorization)
    if pair is None:
        return PresentedCredentials(client_id=client_id, is_malformed=True)
    if client_id not in (None, pair[0]):
        raise BadRequest("The client_id in the body is not the one in the Authorization header: send it once.")
    return PresentedCredentials(client_id=pair[0], client_secret=pair[1])


def parse_basic(authorization: bytes) -> tuple[str, str] | None:
    """Return the client id and secret of a `Basic` header value (RFC 7617, RFC 6749 section 2.3.1); None if malformed.

    Accepts any bytes: strict base64, split at the first colon, each half form-decoded as UTF-8.
    """
    scheme, _, encoded = authorization.strip(b" \t").partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip(b" "), validate=True)
        if base64.b64encode(decoded) != encoded.strip(b" "):
            return None  # `validate` accepts padding that encodes nothing
        client_id, colon, secret = decoded.partition(b":")
        pair = _form_decode(client_id), _form_decode(secret)
    except (binascii.Error, UnicodeDecodeError):
        return None
    return pair if colon and "\0" not in pair[0] + pair[1] else None


async def find_client(database: Database, client_id: str | None) -> Client | None:
    """Return the credential of that id, active or not. A malformed id is not looked up."""
    if client_id is None or not _CLIENT_ID.fullmatch(client_id):
        return None
    for _, secret_hash, epoch, is_active, token_per_minute in await database.rows(_FIND, client_id):
        return Client(
            client_id=client_id,
            secret_hash=secret_hash,
            epoch=epoch,
            is_active=bool(is_active),
            token_per_minute=token_per_minute or TOKEN_PER_MINUTE,
        )
    return None


def is_authenticated(client: Client | None, presented: PresentedCredentials) -> bool:
    """Return whether the request proved this credential: the right secret of an active one."""
    # Hashes are compared in constant time, even without a client: no branch tells a stranger which case it was.
    offered = ids.hash_secret(presented.client_secret or "")
    is_right = hmac.compare_digest(offered, client.secret_hash if client else _NO_HASH)
    return is_right and client is not None and client.is_active and presented.client_secret is not None


def _is_basic(authorization: bytes) -> bool:
    """Return whether the header's scheme is Basic, however malformed the rest may be."""
    return [word.lower() for word in authorization.split(None, 1)[:1]] == [b"basic"]


def _form_decode(half: bytes) -> str:
    if b"%" not in half and b"+" not in half:
        return half.decode("utf-8", "strict")
    return unquote_to_bytes(half.replace(b"+", b" ")).decode("utf-8", "strict")
