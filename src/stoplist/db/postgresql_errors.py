"""Classifies PostgreSQL's errors: the store is unavailable, the transaction is retryable, or our code is wrong.

Source of the classes: the documentation of PostgreSQL, appendix A.
"""

import contextlib
import enum
import re
from collections.abc import Iterator

import asyncpg

from stoplist.db.remedies import ACCOUNTS_ARE_APART, FEEDS_ARE_APART, postgresql_remedy
from stoplist.errors import StoreUnavailable


class Phase(enum.Enum):
    """The step at which PostgreSQL failed."""

    CONNECT = enum.auto()
    STATEMENT = enum.auto()
    AUTOCOMMIT = enum.auto()
    """A statement that is committed by itself."""
    COMMIT = enum.auto()


class Kind(enum.Enum):
    """The party at fault, and the conclusion that the caller may draw."""

    STORE = enum.auto()
    """The store's: nothing is stored."""
    UNCERTAIN = enum.auto()
    """The store's, and it may follow a commit: whether anything is stored is unknown."""
    RETRY = enum.auto()
    """A concurrent transaction's: nothing is stored, and the unit may be run again."""
    POOLER = enum.auto()
    """The store's: a statement was prepared on one server process and executed on another."""
    DEFECT = enum.auto()
    """Our code's: nothing is stored."""


KIND_BY_STATE = {
    "03": Kind.DEFECT,  # SQL statement not yet complete
    "08": Kind.UNCERTAIN,  # connection
    "09": Kind.DEFECT,  # triggered action
    "0A": Kind.DEFECT,  # feature not supported
    "0B": Kind.DEFECT,  # transaction initiation
    "0F": Kind.DEFECT,  # locator
    "0L": Kind.DEFECT,  # grantor
    "0P": Kind.DEFECT,  # role
    "0Z": Kind.DEFECT,  # diagnostics
    "10": Kind.DEFECT,  # XQuery
    "20": Kind.DEFECT,  # case not found
    "21": Kind.DEFECT,  # cardinality
    "22": Kind.DEFECT,  # data
    "23": Kind.DEFECT,  # integrity constraint
    "24": Kind.DEFECT,  # cursor state
    "25": Kind.DEFECT,  # transaction state
    "25006": Kind.STORE,  # the server only reads: a standby
    "25P03": Kind.STORE,  # the transaction was idle too long
    "25P04": Kind.STORE,  # the transaction was open too long
    "26": Kind.POOLER,  # no such prepared statement
    "27": Kind.DEFECT,  # triggered data change
    "28": Kind.STORE,  # login
    "2B": Kind.DEFECT,  # dependent privileges
    "2D": Kind.DEFECT,  # transaction termination
    "2F": Kind.DEFECT,  # SQL routine
    "34": Kind.DEFECT,  # cursor name
    "38": Kind.DEFECT,  # external routine
    "39": Kind.DEFECT,  # external routine invocation
    "3B": Kind.DEFECT,  # savepoint
    "3D": Kind.STORE,  # the database is gone, as while it is restored
    "3F": Kind.DEFECT,  # schema name
    "40": Kind.DEFECT,  # transaction rollback
    "40001": Kind.RETRY,  # serialization failure
    "40003": Kind.UNCERTAIN,  # completion unknown
    "40P01": Kind.RETRY,  # deadlock
    "42": Kind.DEFECT,  # syntax or access rule
    "42P05": Kind.POOLER,  # the prepared statement exists
    "44": Kind.DEFECT,  # WITH CHECK OPTION
    "53": Kind.STORE,  # resources
    "54": Kind.DEFECT,  # program limit
    "54000": Kind.STORE,  # no transaction numbers are left until a VACUUM
    "55": Kind.STORE,  # not in the state for it: locks, a database that accepts no connections
    "57": Kind.STORE,  # operator intervention, timeouts
    "57P01": Kind.UNCERTAIN,  # the connection was ended by the operator
    "57P02": Kind.UNCERTAIN,  # the server crashes
    "57P05": Kind.UNCERTAIN,  # the connection was idle too long
    "58": Kind.STORE,  # system
    "72": Kind.STORE,  # snapshot too old
    "F0": Kind.STORE,  # configuration file
    "HV": Kind.DEFECT,  # foreign data wrapper
    "P0": Kind.DEFECT,  # PL/pgSQL
    "XX": Kind.DEFECT,  # internal
    "XX001": Kind.STORE,  # damaged table
    "XX002": Kind.STORE,  # damaged index
}
"""By SQLSTATE or its class, for errors of statements. What is in no class is our defect."""

_CONSTRAINT_OF_SHARD = re.compile(rf"\b({FEEDS_ARE_APART}|{ACCOUNTS_ARE_APART})_\d+\b")
_DEADLINE_STATES = ("57014", "55P03")
STANDBY_STATE = "25006"
# asyncpg raises InternalClientError if a server ends the connection between two statements (25P03, 57P01) and the next
# statement is sent before the close is noticed.
DRIVER_ERRORS = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError)


class CommitTimeout(ConnectionAbortedError):
    """There was no answer to COMMIT in time, and the connection was closed."""


def kind_of(error: BaseException, phase: Phase) -> Kind:
    """Return whose failure it is.

    While connecting no statement of ours can be at fault, and at a commit nothing but a deferred constraint: Citus
    reports the loss of a node there as an internal error.
    """
    if isinstance(error, ValueError) or not isinstance(error, DRIVER_ERRORS):
        return Kind.DEFECT
    if phase is Phase.CONNECT:
        return Kind.STORE
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return Kind.RETRY
    if _constraint_of(error) in (FEEDS_ARE_APART, ACCOUNTS_ARE_APART):
        return Kind.STORE  # this program was started before the database became one of a pair
    state = sqlstate_of(error)
    kind = KIND_BY_STATE.get(state) or KIND_BY_STATE.get(state[:2], Kind.DEFECT)
    if phase is Phase.COMMIT and kind is not Kind.RETRY and not state.startswith("23"):
        return Kind.UNCERTAIN
    if phase is Phase.AUTOCOMMIT and kind is Kind.DEFECT and state.startswith("XX"):
        return Kind.UNCERTAIN
    return kind


@contextlib.contextmanager
def translated_errors(phase: Phase = Phase.STATEMENT) -> Iterator[None]:
    """Turn store failures into StoreUnavailable, without the server's text, which may contain rows."""
    try:
        yield
    except DRIVER_ERRORS as error:
        kind = kind_of(error, phase)
        if kind in (Kind.DEFECT, Kind.RETRY):
            raise
        raise _store_unavailable(error, kind, phase) from error


def _store_unavailable(error: BaseException, kind: Kind, phase: Phase) -> StoreUnavailable:
    state = sqlstate_of(error)
    if kind is Kind.UNCERTAIN and phase is Phase.COMMIT:
        return StoreUnavailable(
            f"The database did not confirm that this was stored (SQLSTATE {state}), and it may be. Opt-outs can be "
            "sent again safely; look whether anything else is there before you repeat it.",
            is_uncertain=True,
        )
    remedy = postgresql_remedy(state, _constraint_of(error))
    if kind is Kind.POOLER:
        remedy = "behind a connection pooler STOPLIST_DATABASE_PREPARED must be off"
    return StoreUnavailable(
        f"The database cannot serve this now (SQLSTATE {state}): {remedy}.", is_uncertain=kind is Kind.UNCERTAIN
    )


def is_store_failure(error: Exception) -> bool:
    """Return whether a statement failed because of the store, which its operator must mend, and not of our code."""
    return kind_of(error, Phase.STATEMENT) in (Kind.STORE, Kind.UNCERTAIN, Kind.POOLER)


def is_retryable(error: Exception) -> bool:
    """Return whether a concurrent transaction (a migration included) caused the rollback."""
    return kind_of(error, Phase.STATEMENT) is Kind.RETRY


def is_deadline(error: BaseException) -> bool:
    """Return whether a statement or commit took too long: a timeout of ours, of a statement or of a lock."""
    if isinstance(error, StoreUnavailable):
        return isinstance(error.__cause__, CommitTimeout)
    return isinstance(error, TimeoutError) or getattr(error, "sqlstate", None) in _DEADLINE_STATES


def sqlstate_of(error: BaseException) -> str:
    """Return the SQLSTATE of the error; for an error without one, the class of a failed connection."""
    return getattr(error, "sqlstate", None) or "08"


def _constraint_of(error: BaseException) -> str | None:
    """Return the name of the constraint that the statement violated.

    A Citus tells of a worker's constraint in the text alone, and with the number of the shard behind its name.
    """
    of_shard = _CONSTRAINT_OF_SHARD.search(str(error))
    return of_shard[1] if of_shard else getattr(error, "constraint_name", None)
