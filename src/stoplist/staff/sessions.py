"""Sessions: the browsers that people are signed in with.

The browser holds a token, the database its hash. Session, person and rights are read for each request, so a change to
any of them takes effect at once in all processes. Source: docs/interface.md section D11.
"""

from contextlib import suppress

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Forbidden, Missing, StoreUnavailable
from stoplist.staff.lifetimes import active_session_bounds
from stoplist.staff.model import FoundSession, Session, SignedIn, canonical_or_none
from stoplist.staff.store import Account, find_person, lock_account, person_from_rows

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_session"]
_END = _QUERIES["end_session"]
_END_ALL_BUT = _QUERIES["end_sessions_but"]
_FIND = _QUERIES["find_session"]
_NOTE_SIGN_IN = _QUERIES["note_sign_in"]
_OF = _QUERIES["sessions_of"]
_OWNER = _QUERIES["owner_of_session"]
_SIGN_OUT = _QUERIES["sign_out"]
_TOUCH = _QUERIES["touch_session"]

SEEN_PRECISION_MS = 60_000
_MAX_USER_AGENT_CHARS = 300


async def begin(
    transaction: Transaction, actor: Actor, account: Account, user_agent: str, now_ms: int, *, by: str
) -> SignedIn:
    """Begin a new session and record the sign-in, within a transaction that holds the person's lock."""
    session_token, session_id = ids.new_secret(ids.SESSION), ids.new_id(ids.SESSION_ID)
    await transaction.run(
        _ADD,
        session_hash=ids.hash_secret(session_token),
        session_id=session_id,
        person_id=account.person_id,
        now_ms=now_ms,
        source_ip=actor.source_ip or "",
        user_agent=_printable(user_agent),
    )
    await transaction.run(_NOTE_SIGN_IN, person_id=account.person_id, now_ms=now_ms)
    await trail.record(transaction, actor, "person.sign_in", account.email, at_ms=now_ms, session_id=session_id, by=by)
    return SignedIn(await find_person(transaction, account.email), session_token)


async def find_session(database: Database, clock: Clock, session_token: str) -> FoundSession | None:
    """Return the active session of this token with its person; None if it has ended or the account is disabled.

    A session ends after 12 hours without use, and after 7 days. A malformed token is not looked up.
    """
    if not ids.is_well_formed(session_token, ids.SESSION):
        return None
    now_ms, session_hash = clock.now_ms(), ids.hash_secret(session_token)
    rows = await database.all(_FIND, session_hash=session_hash, **active_session_bounds(now_ms))
    if not rows:
        return None
    if rows[0]["seen_ms"] <= now_ms - SEEN_PRECISION_MS:
        with suppress(StoreUnavailable):  # reading must go on while the database cannot be written
            await database.write_one(_TOUCH, session_hash=session_hash, now_ms=now_ms)
    return FoundSession(person_from_rows(rows), rows[0]["session_id"])


async def list_sessions(
    actor: Actor, database: Database, clock: Clock, *, email: str, current_session_id: str | None = None
) -> list[Session]:
    """Return the person's active sessions, last used first. Only an administrator may list those of other people."""
    email = canonical_or_none(email) or ""
    _require_own_sessions(actor, email)
    rows = await database.all(_OF, email=email, **active_session_bounds(clock.now_ms()))
    return [
        Session(
            session_id=row["session_id"],
            created_ms=row["created_ms"],
            seen_ms=row["seen_ms"],
            source_ip=row["source_ip"],
            user_agent=row["user_agent"],
            is_current=row["session_id"] == current_session_id,
        )
        for row in rows
    ]


async def end_session(actor: Actor, database: Database, clock: Clock, *, session_id: str) -> None:
    """End one of the actor's own sessions, or as an administrator any session; otherwise Missing."""
    now_ms = clock.now_ms()

    async def end(transaction: Transaction) -> None:
        owner = await transaction.one(_OWNER, session_id=session_id)
        if owner is None or not (actor.is_administrator or actor.is_person(owner["email"])):
            raise Missing("There is no such session. It may have ended already.")
        if await transaction.run(_END, session_id=session_id):
            await trail.record(transaction, actor, "session.end", owner["email"], at_ms=now_ms, session_id=session_id)

    await database.write(end)


async def end_other_sessions(actor: Actor, database: Database, clock: Clock, *, keep_session_id: str) -> int:
    """End all sessions of the person who acts except this one, and return how many ended."""
    _require_own_sessions(actor, actor.id)
    now_ms = clock.now_ms()

    async def end(transaction: Transaction) -> int:
        account = await lock_account(transaction, actor.id)
        ended = await end_all(transaction, account.person_id, but=keep_session_id)
        if ended:
            await trail.record(transaction, actor, "session.end", account.email, at_ms=now_ms, others=ended)
        return ended

    return await database.write(end)


async def sign_out(database: Database, session_token: str) -> None:
    """End the session of this token; any other text has no effect."""
    if ids.is_well_formed(session_token, ids.SESSION):
        await database.write_one(_SIGN_OUT, session_hash=ids.hash_secret(session_token))


async def end_all(transaction: Transaction, person_id: int, *, but: str = "") -> int:
    """End the person's sessions, except the session `but`, within a transaction; return how many ended."""
    return await transaction.run(_END_ALL_BUT, person_id=person_id, session_id=but)


def _require_own_sessions(actor: Actor, email: str) -> None:
    if not (actor.is_administrator or actor.is_person(email)):
        raise Forbidden("You can see your own sessions only. An administrator can see those of other people.")


def _printable(user_agent: str) -> str:
    """Return a `User-Agent` as one line that the database and a page can hold."""
    return "".join(character for character in user_agent[:_MAX_USER_AGENT_CHARS] if character.isprintable())
