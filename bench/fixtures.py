"""The organizations, people, keys and audit of both deployments in the benchmark of the pages.

They are created by the product's own operations, with a clock set to the past. Only the audit, whose rows are all
alike, is written by SQL.
"""

import itertools
import sqlite3

from bench.scripts import Partner
from bench.server import BenchError
from stoplist import ids
from stoplist.actor import ADMIN, ADMINISTER, VIEWER, Actor
from stoplist.audit.actions import ACTIONS
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.oauth.credentials import create_credential
from stoplist.oauth.model import PERMISSIONS
from stoplist.oauth.usage import Usage
from stoplist.organizations.groups import create_group
from stoplist.organizations.organizations import create_organization
from stoplist.staff.links import use_link
from stoplist.staff.model import SignedIn, StaffStores
from stoplist.staff.people import create_person
from stoplist.staff.roles import set_role

SLUG = "bench"
OTHERS = tuple(f"company-{number}" for number in range(40))
DAYS = 60
ADMINISTRATOR, ORGANIZATION_ADMIN = "ada@people.example", "olga@people.example"
COLLEAGUES = tuple(f"person-{number}@people.example" for number in range(40))
COLLEAGUE = COLLEAGUES[3]
COMMAND = Actor(kind="command", id="bench", may=frozenset((ADMINISTER,)))
UNUSED_ACTION = "database.restored"
"""An action of the audit that never occurred."""

_DAY_MS = 86_400_000
_CEILING = 1_000_000_000

_INSERT_AUDIT = """
INSERT INTO audit (audit_id, at_ms, actor_kind, actor_id, source_ip, request_id, action, target, detail)
VALUES (?, ?, 'person', ?, '192.0.2.7', ?, ?, ?, ?)
"""
_INSERT_CONCERNED = "INSERT INTO audit_organizations (organization_id, at_ms, audit_id) VALUES (?, ?, ?)"


def clock_days_ago(days: int) -> Clock:
    """Return a clock that is `days` days and a minute behind, so that all it records is before now."""
    then = Clock()
    then.offset_ms = -days * _DAY_MS - 60_000
    return then


async def make_organizations(database: Database) -> dict[str, Partner]:
    """Create SLUG and OTHERS, each with an additional group; return a key with high ceilings for each slug."""
    then = clock_days_ago(DAYS + 1)
    keys: dict[str, Partner] = {}
    for slug in (SLUG, *OTHERS):
        await create_organization(COMMAND, database, then, slug=slug, name=f"The {slug} company", default_group="News")
        await create_group(COMMAND, database, then, org_slug=slug, name="Offers")
        created = await create_credential(
            COMMAND,
            database,
            then,
            label=f"Nightly import of {slug}",
            organizations=[slug],
            permissions=frozenset(PERMISSIONS),
            token_per_minute=_CEILING,
            api_per_minute=_CEILING,
        )
        keys[slug] = Partner(client_id=created.credential.client_id, client_secret=created.client_secret)
    return keys


async def make_people(database: Database) -> dict[str, str]:
    """Create COLLEAGUES with two roles each, an administrator, and an admin of six organizations.

    Return the session tokens of the last two by e-mail address.
    """
    for number, email in enumerate(COLLEAGUES):
        await create_person(COMMAND, database, clock_days_ago(DAYS), email=email)
        mine, other = (SLUG if number % 4 == 3 else OTHERS[number]), OTHERS[number * 7 % len(OTHERS)]
        await set_role(COMMAND, database, clock_days_ago(DAYS), email=email, org_slug=mine, role=VIEWER)
        await set_role(COMMAND, database, clock_days_ago(DAYS), email=email, org_slug=other, role=ADMIN)
    tokens = {
        ADMINISTRATOR: await _sign_in(database, ADMINISTRATOR, is_administrator=True),
        ORGANIZATION_ADMIN: await _sign_in(database, ORGANIZATION_ADMIN, is_administrator=False),
    }
    for slug in (SLUG, *OTHERS[:5]):
        await set_role(COMMAND, database, clock_days_ago(DAYS), email=ORGANIZATION_ADMIN, org_slug=slug, role=ADMIN)
    return tokens


async def use_keys(database: Database, keys: dict[str, Partner]) -> None:
    """Record use of each key on every day, and a few refusals."""
    usage = Usage()
    for days_ago, (number, key) in itertools.product(range(30, -1, -1), enumerate(keys.values())):
        now_ms = clock_days_ago(days_ago).now_ms()
        for at, code in enumerate([None] * 20 + ["rate_limited"] * (2 if (days_ago + number) % 5 == 0 else 0)):
            usage.note(
                key.client_id,
                now_ms=now_ms + at,
                is_authenticated=True,
                error=code,
                request_id=ids.new_request_id(),
            )
    await usage.flush(database)


def fill_audit(connection: sqlite3.Connection, rows: int) -> None:
    """Add `rows` entries on keys and organizations, spread over a year."""
    now_ms = Clock().now_ms()
    first = int(connection.execute("SELECT max(audit_id) FROM audit").fetchone()[0]) + 1
    numbers = dict(connection.execute("SELECT slug, organization_id FROM organizations").fetchall())
    keys = [row[0] for row in connection.execute("SELECT client_id FROM clients ORDER BY created_ms, client_id")]
    actions = [name for name in ACTIONS if name.startswith(("key.", "group.", "organization."))]
    slugs = [SLUG, *OTHERS]
    entries, organization_entries = [], []
    for number in range(rows):
        at_ms = now_ms - 365 * _DAY_MS + number * 364 * _DAY_MS // rows
        slug = slugs[number % len(slugs)]
        action = actions[number % len(actions)]
        target = keys[number % len(keys)] if action.startswith("key.") else slug
        who = COLLEAGUE if number % 3 == 0 else COLLEAGUES[number % len(COLLEAGUES)]
        entries.append((first + number, at_ms, who, f"req_{number}", action, target, '{"label":"Nightly import"}'))
        if number % 5:
            organization_entries.append((numbers[slug], at_ms, first + number))
    with connection:
        connection.executemany(_INSERT_AUDIT, entries)
        connection.executemany(_INSERT_CONCERNED, organization_entries)


async def _sign_in(database: Database, email: str, *, is_administrator: bool) -> str:
    now = Clock()
    created = await create_person(COMMAND, database, now, email=email, is_administrator=is_administrator)
    stores = StaffStores(database, now, ())
    person = Actor(kind="person", id=email, source_ip="192.0.2.7")
    entered = await use_link(
        person, stores, link_token=created.link_token, password="a pass phrase of nobody", user_agent="bench"
    )
    if not isinstance(entered, SignedIn):
        raise BenchError(f"{email} could not be signed in")
    return entered.session_token
