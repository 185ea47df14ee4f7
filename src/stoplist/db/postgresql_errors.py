"""Classifies PostgreSQL's errors: the store is unavailable, the transaction is retryable, or our code is wrong."""

import contextlib
from collections.abc import Iterator

import asyncpg

from stoplist.errors import StoreUnavailable

# Classes of SQLSTATE that mean the store is unavailable: connection, resources, operator intervention, system error,
# lock not available, read-only (a standby), a transaction that was idle or open too long, login or database gone (being
# restored).
_STORE_STATES = ("08", "53", "57", "58", "25006", "25P03", "25P04", "55P03", "28", "3D")
# Of these, the ones that may follow a commit: the connection broke, or the server was told to end it.
_UNCERTAIN_STATES = ("08", "57P01", "57P02")
_RETRYABLE_STATES = ("40001", "40P01")
# A statement was prepared on one server process and executed on another.
_POOLER_STATES = ("26000", "42P05")
STANDBY_STATE = "25006"
# asyncpg raises InternalClientError if a server ends the connection between two statements (25P03, 57P01) and the next
# statement is sent before the close is noticed.
DRIVER_ERRORS = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError)


@contextlib.contextmanager
def translated_errors(*, is_certain: bool = False) -> Iterator[None]:
    """Turn store failures into StoreUnavailable, without the server's text, which may contain rows.

    `is_certain` means that nothing has been sent yet, so nothing can have been stored.
    """
    try:
        yield
    except DRIVER_ERRORS as error:
        if not is_store_failure(error):
            raise  # a defect in our code
        raise store_unavailable(error, is_certain=is_certain) from error


def store_unavailable(error: Exception, *, is_certain: bool) -> StoreUnavailable:
    """Return the StoreUnavailable for a store failure."""
    state = sqlstate_of(error)
    return StoreUnavailable(
        f"The database cannot serve this now (SQLSTATE {state}): {_remedy(state)}.",
        is_uncertain=not is_certain and state.startswith(_UNCERTAIN_STATES),
    )


def is_store_failure(error: Exception) -> bool:
    """Return whether the error is for the operator of the database to fix, not a defect in our code."""
    if isinstance(error, ValueError) or not isinstance(error, DRIVER_ERRORS):
        return False
    return sqlstate_of(error).startswith((*_STORE_STATES, *_POOLER_STATES))


def is_retryable(error: Exception) -> bool:
    """Return whether a concurrent transaction (a migration included) caused the rollback."""
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return True
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _RETRYABLE_STATES


def sqlstate_of(error: BaseException) -> str:
    """Return the SQLSTATE of the error; for an error without one, the class of a failed connection."""
    return getattr(error, "sqlstate", None) or "08"


def _remedy(state: str) -> str:
    if state in _POOLER_STATES:
        return "behind a connection pooler STOPLIST_DATABASE_PREPARED must be off"
    return "try again shortly"
