"""Erased persons in a mirror: a digest stands where the address stood, and the record goes on barring.

Source: docs/interface.md section D13.
"""

import base64
import hmac
import sqlite3
from collections.abc import Sequence

import msgspec

PREFIX = "erased:"
"""No canonical address begins so, on any channel."""

_RANGE = "address >= 'erased:' AND address < 'erased;'"
_BY_ID = """
SELECT address, group_no, seq, id FROM records WHERE copy_no = ? AND id IN (SELECT value FROM json_each(?))
"""
# By the primary keys of `states` and `records`: those that were erased, which are few.
_ERASED_BY_ID = f"""
SELECT records.address, records.group_no, records.seq, records.id FROM states CROSS JOIN records
  ON records.copy_no = states.copy_no AND records.seq = states.seq AND records.address = states.address
  AND records.group_no = states.group_no
WHERE states.copy_no = ? AND states.{_RANGE.replace("AND ", "AND states.")}
  AND records.id IN (SELECT value FROM json_each(?))
"""  # noqa: S608 - constants
_HAS_ERASED_STATE = f"SELECT EXISTS (SELECT 1 FROM states WHERE copy_no = ? AND {_RANGE})"  # noqa: S608 - constants
_HAS_ERASED_RECORD = f"SELECT EXISTS (SELECT 1 FROM records WHERE copy_no = ? AND {_RANGE})"  # noqa: S608 - constants
_OLD_VERSIONS = """
SELECT old.address, old.group_no, old.seq, old.id FROM records AS old JOIN (
  SELECT id, max(seq) AS seq FROM records WHERE copy_no = :copy_no GROUP BY id HAVING count(*) > 1
) AS new ON new.id = old.id WHERE old.copy_no = :copy_no AND old.seq < new.seq
"""
_DELETE_RECORD = "DELETE FROM records WHERE copy_no = ? AND seq = ? AND address = ? AND group_no = ?"
_DELETE_STATE = "DELETE FROM states WHERE copy_no = ? AND address = ? AND group_no = ?"
_FORGET_MISSING = """
DELETE FROM missing WHERE feed_no = :feed_no AND id IN (
  SELECT id FROM records WHERE copy_no = :copy_no AND is_barred)
"""

Replaced = tuple[str, int, int, str]
"""The address, group number, number and id of a stored record."""


def stored_address(address: str | None, address_digest: str | None) -> str | None:
    """Return what stands for the address in the file; None if the service gave neither."""
    return address if address is not None else None if address_digest is None else PREFIX + address_digest


def digest_of(stored: str) -> str | None:
    """Return the digest of an erased person, else None."""
    return stored[len(PREFIX) :] if stored.startswith(PREFIX) else None


def erased_form(digest_key: str, canonical: str) -> str:
    """Return what stands for a canonical address if its person was erased."""
    key = base64.urlsafe_b64decode(digest_key + "=")
    return PREFIX + hmac.digest(key, canonical.encode(), "sha256").hex()


def find_replaced(connection: sqlite3.Connection, copy_no: int, rows: Sequence[tuple[str, str]]) -> list[Replaced]:
    """Return the stored records of these ids that have another address: erased since, or brought back.

    `rows` are addresses as stored, and ids.
    """
    erased = [id_ for address, id_ in rows if address.startswith(PREFIX)]
    others = [id_ for address, id_ in rows if not address.startswith(PREFIX)]
    found: list[Replaced] = []
    if erased:  # reads the whole copy: its records are not sorted by id, and erasures are rare
        found += connection.execute(_BY_ID, (copy_no, msgspec.json.encode(erased).decode())).fetchall()
    if others and connection.execute(_HAS_ERASED_STATE, (copy_no,)).fetchone()[0]:
        found += connection.execute(_ERASED_BY_ID, (copy_no, msgspec.json.encode(others).decode())).fetchall()
    address_by_id = {id_: address for address, id_ in rows}
    return [each for each in found if each[0] != address_by_id[each[3]]]


def delete_replaced(connection: sqlite3.Connection, copy_no: int, replaced: Sequence[Replaced]) -> int:
    """Delete these records and what they answer; return how many there were."""
    deleted = connection.executemany(
        _DELETE_RECORD, [(copy_no, seq, address, group_no) for address, group_no, seq, _ in replaced]
    ).rowcount
    connection.executemany(_DELETE_STATE, [(copy_no, address, group_no) for address, group_no, _, _ in replaced])
    return deleted


def delete_old_versions(connection: sqlite3.Connection, copy_no: int) -> None:
    """Delete, from a copy that was just read, what stands under the former address of a record."""
    if connection.execute(_HAS_ERASED_RECORD, (copy_no,)).fetchone()[0]:
        delete_replaced(connection, copy_no, connection.execute(_OLD_VERSIONS, {"copy_no": copy_no}).fetchall())


def forget_missing(connection: sqlite3.Connection, feed_no: int, copy_no: int, old_no: int | None) -> None:
    """Delete the opt-outs that seem lost only because their address was erased, or is there again: the record bars."""
    if any(connection.execute(_HAS_ERASED_RECORD, (one,)).fetchone()[0] for one in (copy_no, old_no)):
        connection.execute(_FORGET_MISSING, {"feed_no": feed_no, "copy_no": copy_no})
