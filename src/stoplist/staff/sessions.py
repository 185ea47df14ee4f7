"""Sessions: a browser that somebody is signed in with.

The browser holds a token, the database its hash. Session, person and rights are read anew for each request, so whatever
ends one of them holds at once everywhere. Source: docs/interface.md section D11.
"""

from contextlib import suppress

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Forbidden, Missing, StoreUnavailable
from stoplist.staff.lifetimes import living
from stoplist.staff.model import FoundSession, Session, SignedIn, canonical_or_none
from stoplist.staff.store import Account, find_person, lock_account, person_of

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

SEEN_EXACT_MS = 60_000
_LONGEST_USER_AGENT = 300


async def begin(
    transaction: Transaction, actor: Actor, account: Account, user_agent: str, now_ms: int, *, by: str
) -> SignedIn:
    """Within a transaction that holds the person: he is in, with a session that nobody has seen before."""
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
    """Whose session this is; None if it has ended or the door is closed to the person.

    A session ends after 12 hours without use, and after 7 days. What cannot be a token costs no look-up.
    """
    if not ids.is_well_formed(session_token, ids.SESSION):
        return None
    now_ms, session_hash = clock.now_ms(), ids.hash_secret(session_token)
    rows = await database.all(_FIND, session_hash=session_hash, **living(now_ms))
    if not rows:
        return None
    if rows[0]["seen_ms"] <= now_ms - SEEN_EXACT_MS:
        with suppress(StoreUnavailable):  # whoever only reads goes on where nothing can be written
            await database.write_one(_TOUCH, session_hash=session_hash, now_ms=now_ms)
    return FoundSession(person_of(rows), rows[0]["session_id"])


async def list_sessions(
    actor: Actor, database: Database, clock: Clock, *, email: str, current_session_id: str | None = None
) -> list[Session]:
    """The living sessions of the person, last used first: one's own, or as an administrator anybody's."""
    email = canonical_or_none(email) or ""
    _must_be_own(actor, email)
    rows = await database.all(_OF, email=email, **living(clock.now_ms()))
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
    """The session has ended: one's own, or as an administrator anybody's. Missing if there is none."""
    now_ms = clock.now_ms()

    async def end(transaction: Transaction) -> None:
        owner = await transaction.one(_OWNER, session_id=session_id)
        if owner is None or not (actor.is_administrator or actor.is_person(owner["email"])):
            raise Missing("There is no such session: it may have ended already.")
        if await transaction.run(_END, session_id=session_id):
            await trail.record(transaction, actor, "session.end", owner["email"], at_ms=now_ms, session_id=session_id)

    await database.write(end)


async def end_other_sessions(actor: Actor, database: Database, clock: Clock, *, keep_session_id: str) -> int:
    """All sessions of the person who acts have ended but this one; how many that were."""
    _must_be_own(actor, actor.id)
    now_ms = clock.now_ms()

    async def end(transaction: Transaction) -> int:
        account = await lock_account(transaction, actor.id)
        ended = await end_all(transaction, account.person_id, but=keep_session_id)
        if ended:
            await trail.record(transaction, actor, "session.end", account.email, at_ms=now_ms, others=ended)
        return ended

    return await database.write(end)


async def sign_out(database: Database, session_token: str) -> None:
    """The session has ended; any text will do."""
    if ids.is_well_formed(session_token, ids.SESSION):
        await database.write_one(_SIGN_OUT, session_hash=ids.hash_secret(session_token))


async def end_all(transaction: Transaction, person_id: int, *, but: str = "") -> int:
    """Within a transaction: every session of the person has ended, or every one but that; how many those were."""
    return await transaction.run(_END_ALL_BUT, person_id=person_id, session_id=but)


def _must_be_own(actor: Actor, email: str) -> None:
    if not (actor.is_administrator or actor.is_person(email)):
        raise Forbidden("Sessions are shown to their own person, and to administrators.")


def _printable(user_agent: str) -> str:
    """What a browser says of itself, as one line that the database and a page can take."""
    return "".join(one for one in user_agent[:_LONGEST_USER_AGENT] if one.isprintable())
