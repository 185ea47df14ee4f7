"""What is to be said of what a database told of itself: no question is asked here."""

from stoplist.db import Row, schema
from stoplist.db.schema import Deployment
from stoplist.errors import SettingsError
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, warning, wrong
from stoplist.settings import Settings

OFFSET_WARNING_MS = 1_000
OFFSET_WRONG_MS = 5_000


def of_deployment(known: Deployment | None, settings: Settings, *, is_environment_set: bool) -> list[Finding]:
    """Whether this release may serve it, in the environment that is set, and whether it is all there."""
    if known is None:
        text = "The database is empty or another product's: `stoplist migrate` makes one in an empty place."
        return [
            wrong("schema", text),
            *(not_checked(check, "There is no schema.") for check in ("environment", "copy")),
        ]
    newest = schema.load_migrations()[-1].number
    try:
        schema.check(known._replace(is_incomplete=False), environment=None, newest=newest)
    except SettingsError as error:
        of_schema = wrong("schema", error.text)
    else:
        of_schema = ok("schema", f"It is {known.schema_version}, and this release needs {newest}.")
    of_environment = _of_environment(known.environment, settings.environment, is_set=is_environment_set)
    return [of_schema, of_environment, _of_copy(known)]


def of_role(facts: Row) -> Finding:
    """A standby takes no writes."""
    if facts["is_standby"]:
        return wrong("role", "This is a standby: name the primary with STOPLIST_DATABASE_URL, or promote this one.")
    if facts["is_read_only"]:
        return wrong("role", "Transactions are read-only by default: set default_transaction_read_only = off.")
    return ok("role", "This is a primary.")


def of_durability(facts: Row) -> Finding:
    """Whether an answer that was given survives a crash."""
    weak = [
        f"{name} = {facts[name]}"
        for name in ("synchronous_commit", "fsync", "full_page_writes")
        if facts[name] == "off"
    ]
    if weak:
        return wrong("durability", f"PostgreSQL has {', '.join(weak)}, and loses answered requests in a crash: set on.")
    return ok("durability", f"synchronous_commit is {facts['synchronous_commit']}, fsync and full_page_writes are on.")


def of_offset(offset_ms: int) -> Finding:
    """How far this host's clock is ahead of the database's; servers follow the latter."""
    text = f"This host's is {abs(offset_ms) / 1000:.1f} s {'ahead of' if offset_ms >= 0 else 'behind'} the database's"
    if abs(offset_ms) > OFFSET_WRONG_MS:
        return wrong("clock", f"{text}: let both be set by NTP, for certificates and logs go by them.")
    if abs(offset_ms) > OFFSET_WARNING_MS:
        return warning("clock", f"{text}: look at NTP on both.")
    return ok("clock", f"{text}.")


def of_connections(settings: Settings, available: int) -> Finding:
    """Whether the pools of this host's servers fit into what PostgreSQL takes."""
    needed = settings.database_pool * settings.workers
    text = f"The servers of one host open up to {needed} (STOPLIST_DATABASE_POOL times STOPLIST_WORKERS)"
    if not settings.database_prepared:
        return not_checked("connections", f"{text}, to a pooler as it seems: see that it takes them.")
    if needed > available:
        return wrong("connections", f"{text}, and PostgreSQL takes {available}: raise max_connections or lower these.")
    return ok("connections", f"{text}, and PostgreSQL takes {available} from all hosts together.")


def _of_copy(known: Deployment) -> Finding:
    if not known.is_incomplete:
        return ok("copy", "No `stoplist copy` into this database is unfinished.")
    return wrong(
        "copy", "`stoplist copy` has not finished filling this database: let it finish, or run the same command again."
    )


def _of_environment(known: str, wanted: str, *, is_set: bool) -> Finding:
    if known == wanted:
        return ok("environment", f"It is {known}.")
    text = f"The database belongs to {known}, and STOPLIST_ENVIRONMENT is {wanted if is_set else 'not set'}"
    if is_set:
        return wrong("environment", f"{text}: set it to {known}, or name another database.")
    return warning("environment", f"{text}: set it to {known}, unless servers are started with --environment {known}.")
