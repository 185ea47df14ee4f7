"""PostgreSQL's errors: which are the store's trouble, which are worth another try, which are defects of ours."""

import contextlib
from collections.abc import Iterator

import asyncpg

from stoplist.errors import StoreUnavailable

# Classes of SQLSTATE that are the store's trouble: connection, resources, operator intervention, system error, lock not
# available, read-only (a standby), a transaction that was idle or open too long, login or database gone (being
# restored).
_STORE_STATES = ("08", "53", "57", "58", "25006", "25P03", "25P04", "55P03", "28", "3D")
# Of these, what may come after the commit: the connection broke, or the server was told to end it.
_UNCERTAIN_STATES = ("08", "57P01", "57P02")
_AGAIN_STATES = ("40001", "40P01")
# A statement that was prepared on one server process and met another.
_POOLER_STATES = ("26000", "42P05")
STANDBY_STATE = "25006"
# The library is at a loss, with an InternalClientError, where a server says goodbye between two statements (25P03,
# 57P01) and the next one is sent before the connection is seen to be closed.
RAISED = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError)


@contextlib.contextmanager
def translated(*, is_certain: bool = False) -> Iterator[None]:
    """The store's trouble becomes StoreUnavailable; the server's text, which may hold rows, goes no further.

    `is_certain` says that nothing was sent yet, so that nothing can have been stored.
    """
    try:
        yield
    except RAISED as error:
        if not is_of_the_store(error):
            raise  # a defect of ours
        raise unavailable(error, is_certain=is_certain) from error


def unavailable(error: Exception, *, is_certain: bool) -> StoreUnavailable:
    """What the store's trouble is told as."""
    state = state_of(error)
    return StoreUnavailable(
        f"The database cannot serve this now (SQLSTATE {state}): {_remedy(state)}.",
        is_uncertain=not is_certain and state.startswith(_UNCERTAIN_STATES),
    )


def is_of_the_store(error: Exception) -> bool:
    """Whether it is for the operator of the database, and not for us, to look into."""
    if isinstance(error, ValueError) or not isinstance(error, RAISED):
        return False
    return state_of(error).startswith((*_STORE_STATES, *_POOLER_STATES))


def is_worth_another_try(error: Exception) -> bool:
    """Whether the transaction was undone by what another one did at the same time, a migration included."""
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return True
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _AGAIN_STATES


def state_of(error: BaseException) -> str:
    """Its SQLSTATE; of whatever has none, that of a connection that failed."""
    return getattr(error, "sqlstate", None) or "08"


def _remedy(state: str) -> str:
    if state in _POOLER_STATES:
        return "behind a connection pooler STOPLIST_DATABASE_PREPARED must be off"
    return "try again shortly"
