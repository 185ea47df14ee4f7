"""Findings on facts read from a database. Pure functions: nothing is queried here."""

from stoplist.db import Row, schema
from stoplist.db.schema import Deployment
from stoplist.errors import SettingsError
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, warning, wrong
from stoplist.settings import Settings

OFFSET_WARNING_MS = 1_000
OFFSET_WRONG_MS = 5_000


def assess_deployment(deployment: Deployment | None, settings: Settings, *, is_environment_set: bool) -> list[Finding]:
    """Return the findings on schema, environment and an unfinished `stoplist copy`."""
    if deployment is None:
        text = "The database is empty or another product's: `stoplist migrate` creates the schema in an empty one."
        return [
            wrong("schema", text),
            *(not_checked(check, "There is no schema.") for check in ("environment", "copy")),
        ]
    newest = schema.load_migrations()[-1].number
    try:
        schema.check(deployment._replace(is_incomplete=False), environment=None, newest=newest)
    except SettingsError as error:
        schema_finding = wrong("schema", error.text)
    else:
        schema_finding = ok("schema", f"It is {deployment.schema_version}, and this release needs {newest}.")
    environment_finding = _assess_environment(deployment.environment, settings.environment, is_set=is_environment_set)
    return [schema_finding, environment_finding, _assess_copy(deployment)]


def assess_role(facts: Row, *, setting: str = "STOPLIST_DATABASE_URL") -> Finding:
    """Return the finding on the server's role: wrong for a standby or read-only server. `setting` names the server."""
    if facts["is_standby"]:
        return wrong("role", f"This is a standby: name the primary with {setting}, or promote this one.")
    if facts["is_read_only"]:
        return wrong("role", "Transactions are read-only by default: set default_transaction_read_only = off.")
    return ok("role", "This is a primary.")


def assess_durability(facts: Row) -> Finding:
    """Return the finding on durability: wrong if a confirmed write could be lost in a crash."""
    weak = [
        f"{name} = {facts[name]}"
        for name in ("synchronous_commit", "fsync", "full_page_writes")
        if facts[name] == "off"
    ]
    if weak:
        return wrong("durability", f"PostgreSQL has {', '.join(weak)}; a crash may lose confirmed writes: set on.")
    return ok("durability", f"synchronous_commit is {facts['synchronous_commit']}, fsync and full_page_writes are on.")


def assess_clock_offset(offset_ms: int) -> Finding:
    """Return the finding on the offset of this host's clock from the database's, which servers follow."""
    text = f"This host's is {abs(offset_ms) / 1000:.1f} s {'ahead of' if offset_ms >= 0 else 'behind'} the database's"
    if abs(offset_ms) > OFFSET_WRONG_MS:
        return wrong("clock", f"{text}: synchronise both by NTP, because certificates and logs depend on them.")
    if abs(offset_ms) > OFFSET_WARNING_MS:
        return warning("clock", f"{text}: check NTP on both.")
    return ok("clock", f"{text}.")


def assess_connections(settings: Settings, available: int, *, of_process: int, share: str) -> Finding:
    """Return the finding on the connection pools of this host's servers against PostgreSQL's limit.

    Each process opens up to `of_process` connections, which are `share` of its pool.
    """
    needed = of_process * settings.workers
    text = f"The servers of one host open up to {needed} ({share} times STOPLIST_WORKERS)"
    if not settings.database_prepared:
        return not_checked("connections", f"{text}, probably to a pooler: check that it allows them.")
    if needed > available:
        return wrong("connections", f"{text}, but PostgreSQL allows {available}: raise max_connections or lower these.")
    return ok("connections", f"{text}, and PostgreSQL allows {available} for all hosts together.")


def _assess_copy(deployment: Deployment) -> Finding:
    if not deployment.is_incomplete:
        return ok("copy", "No `stoplist copy` into this database is unfinished.")
    return wrong(
        "copy", "`stoplist copy` has not finished filling this database: let it finish, or run the same command again."
    )


def _assess_environment(actual: str, configured: str, *, is_set: bool) -> Finding:
    if actual == configured:
        return ok("environment", f"It is {actual}.")
    text = f"The database belongs to {actual}, and STOPLIST_ENVIRONMENT is {configured if is_set else 'not set'}"
    if is_set:
        return wrong("environment", f"{text}: set it to {actual}, or name another database.")
    return warning(
        "environment", f"{text}: set it to {actual}, unless servers are started with --environment {actual}."
    )
