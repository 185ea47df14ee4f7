"""Sign-in links that wait for their e-mail, encrypted under the secret key like other secrets that are read again.

A link that no key can read is given up when it is due, and prevents no start: its person gets another one.
Source: docs/interface.md section D16.
"""

from collections.abc import Sequence

import msgspec

from stoplist import ids
from stoplist.db import Database, Transaction
from stoplist.db.encrypted_column import EncryptedColumn
from stoplist.db.query import load_queries
from stoplist.notices.model import NOBODY, SIGN_IN_LINK, body_text, mail_to

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_notice"]
_ADD_SEALED = _QUERIES["add_sealed_delivery"]
_END_OF = _QUERIES["end_sealed_deliveries"]
_COLUMN = EncryptedColumn(
    key="notice_id",
    column="sealed",
    first="",
    after=_QUERIES["sealed_after"],
    replace=_QUERIES["replace_sealed"],
    purpose="sign-in link",
)


class SealedLink(msgspec.Struct, frozen=True):
    """A link by which a person comes in. An invitation has the other fields, too.

    An older program stores an invitation without `link_hash`.
    """

    url: str
    address: str | None = None
    organization: str | None = None
    link_hash: bytes | None = None


async def add_link(
    transaction: Transaction,
    link: SealedLink,
    *,
    person_id: int = NOBODY,
    secret_keys: Sequence[str],
    now_ms: int,
    expires_ms: int,
) -> None:
    """Have a link sent to its person, in the transaction that makes it."""
    notice_id = ids.new_id(ids.NOTICE_ID)
    body = body_text(SIGN_IN_LINK, now_ms, {})
    await transaction.run(
        _ADD, notice_id=notice_id, kind=SIGN_IN_LINK, subject=str(person_id), body=body, created_ms=now_ms
    )
    await transaction.run(
        _ADD_SEALED,
        notice_id=notice_id,
        via=mail_to(person_id),
        sealed=_COLUMN.encrypted(secret_keys, notice_id, msgspec.json.encode(link).decode()),
        next_ms=now_ms,
        until_ms=expires_ms,
    )


async def end_links(transaction: Transaction, person_id: int, now_ms: int) -> None:
    """Send no sign-in link of this person that still waits: they do not work any more."""
    await transaction.run(_END_OF, via=mail_to(person_id), ended_ms=now_ms)


def readable_link(secret_keys: Sequence[str], notice_id: str, sealed: str) -> SealedLink | None:
    """Return a link, or None if no key can read it."""
    text = _COLUMN.readable(secret_keys, notice_id, sealed)
    return None if text is None else msgspec.json.decode(text, type=SealedLink)


async def renew_sealed_links(database: Database, secret_keys: Sequence[str]) -> None:
    """Encrypt every link that waits, and can be read, under the first key. Safe to repeat, and while others serve."""
    await _COLUMN.renew(database, secret_keys)
