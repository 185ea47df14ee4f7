"""`serve --demo`: fills an empty development database, and prints commands to try it with.

A start that was interrupted meanwhile is completed by the next one. The administrator is created last, so a demo
without that person is incomplete.

Source: docs/interface.md section D9.
"""

import shlex
import sys

import click

from stoplist.actor import ADMINISTER, Actor
from stoplist.audit.reading import list_audit
from stoplist.cli import demo_history
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.oauth.credentials import NewCredential, create_credential, list_credentials, rotate_secret
from stoplist.oauth.model import Credential
from stoplist.organizations.organizations import create_organization, list_organizations
from stoplist.settings import Settings
from stoplist.staff.people import create_person, list_people, new_link
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import BadItem, Item, OptOutStores, RequestedTarget
from stoplist.unsubscribes.submit import submit
from stoplist.web.request_context import API_PATH, DOCS_PATH, SIGN_IN_PATH, TOKEN_PATH, sign_in_url

SLUG = "demo"
_KEY_LABEL = "Demo"
ADMIN_EMAIL = "admin@demo.example"
_OPT_OUTS: dict[str, list[Item | BadItem]] = {
    "email": [
        Item(address="carla@example.org", occurred_at="2026-03-01T09:30:00Z", source="link in the newsletter"),
        Item(address="dmitri@example.net", occurred_at="2026-04-12T17:05:00Z", reason="complaint"),
        Item(address="ewa@example.com", occurred_at="2026-05-20T06:45:00Z", reason="bounce"),
    ],
    "sms": [Item(address="+14155550123", occurred_at="2026-02-14T20:15:00Z", reason="stop_keyword", source="STOP")],
    "phone": [Item(address="+447700900123", occurred_at="2026-06-03T11:00:00Z", reason="manual", source="said so")],
}
_FILLING = "Filling the database with two months of made-up opt-outs, which takes some seconds …"
_GOING_ON = "An earlier start did not finish filling the database: going on with what is missing …"
_ACTOR = Actor(kind="system", id="serve --demo", may=frozenset((ADMINISTER,)))


async def show(settings: Settings, database: Database, clock: Clock) -> None:
    """Fill the database if it is empty or an earlier start did not finish; print what it contains and how to try it."""
    slugs = [organization.slug for organization in await list_organizations(_ACTOR, database)]
    if slugs and not await _is_incomplete(database):
        click.echo(await _existing_demo_text(settings, database, clock))
        return
    click.echo(_GOING_ON if slugs else _FILLING)
    await demo_history.fill(_ACTOR, database, clock)
    if SLUG not in slugs:
        await create_organization(_ACTOR, database, clock, slug=SLUG, name="Demo", default_group="Newsletter")
    created = await _demo_key(database, clock)
    await _submit_opt_outs(database, clock, created.credential)
    link = await create_person(_ACTOR, database, clock, email=ADMIN_EMAIL, is_administrator=True)
    sign_in_text = _link_text(settings, link.link_token)
    click.echo(_new_demo_text(settings, sign_in_text, created.credential.client_id, created.client_secret))


async def _is_incomplete(database: Database) -> bool:
    """Return whether a demo was begun here and not finished. A database that is used otherwise never was one."""
    created = await list_audit(_ACTOR, database, person=_ACTOR.id, action="organization.create", limit=1)
    return bool(created.entries) and all(person.email != ADMIN_EMAIL for person in await list_people(_ACTOR, database))


async def _demo_key(database: Database, clock: Clock) -> NewCredential:
    """Create the demo's key. The secret of one that an earlier start created was never shown, so it is replaced."""
    for key in await list_credentials(_ACTOR, database):
        if (key.label, key.organizations) == (_KEY_LABEL, [SLUG]):
            return await rotate_secret(_ACTOR, database, clock, client_id=key.client_id)
    return await create_credential(_ACTOR, database, clock, label=_KEY_LABEL, organizations=[SLUG])


async def _submit_opt_outs(database: Database, clock: Clock, key: Credential) -> None:
    """Submit some opt-outs on every channel with the demo's own key."""
    actor = Actor(kind="client", id=key.client_id, may=frozenset(key.permissions))
    stores = OptOutStores(database=database, clock=clock, secret_keys=())
    for channel, items in _OPT_OUTS.items():
        await submit(actor, stores, CHANNELS[channel], RequestedTarget(), items)


def _new_demo_text(settings: Settings, sign_in_text: str, client_id: str, client_secret: str) -> str:
    only_token = """sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/'"""
    two_items = '{"items": [{"address": "Ann@Example.com"}, {"address": "bob@example.com", "reason": "complaint"}]}'
    operation = f"{settings.base_url}{API_PATH}/unsubscribe/email"
    return f"""
Stoplist runs at {settings.base_url}, with two months of made-up opt-outs.

{sign_in_text}
To try the API, use this key of the organization "{SLUG}":

  client_id      {client_id}
  client_secret  {client_secret}   (shown only once: keep it)

Paste these lines into another terminal, in this folder.
Get a token, which is valid for 15 minutes:

  TOKEN=$({_get_token(settings, client_id, client_secret)} | {only_token})

Opt two people out:

  {_call(settings)} -H 'Content-Type: application/json' -d '{two_items}' {operation}

List everyone who opted out:

  {_call(settings)} {operation}

API reference: {settings.base_url}{DOCS_PATH}
Stop with Ctrl+C. The key also works after the next start.
"""


async def _existing_demo_text(settings: Settings, database: Database, clock: Clock) -> str:
    slugs = [organization.slug for organization in await list_organizations(_ACTOR, database)]
    keys = [f"{key.client_id} ({key.label})" for key in await list_credentials(_ACTOR, database)]
    return f"""
Stoplist runs at {settings.base_url}.

{await _sign_in_text(settings, database, clock)}
The database already contains:

  organizations  {", ".join(slugs)}
  keys           {", ".join(keys) or "none"}

The secrets are not shown again. Create another key:

  {_command(settings, "key create")} --label Another --org {slugs[0]}

Get a token with a key:

  {_get_token(settings, "CLIENT_ID", "CLIENT_SECRET")}

API reference: {settings.base_url}{DOCS_PATH}
Stop with Ctrl+C.
"""


async def _sign_in_text(settings: Settings, database: Database, clock: Clock) -> str:
    """Return how to sign in to the pages: by a link until the demo's administrator has chosen a password."""
    people = await list_people(_ACTOR, database)
    if not people:
        return f"""Nobody can sign in to the pages yet. Create an administrator:

  {_command(settings, "user create")} --administrator YOU@EXAMPLE.ORG
"""
    if any(person.email == ADMIN_EMAIL and not (person.has_password or person.is_disabled) for person in people):
        link = await new_link(_ACTOR, database, clock, email=ADMIN_EMAIL)
        return _link_text(settings, link.link_token)
    return f"""Sign in to the pages:

  {settings.base_url}{SIGN_IN_PATH}
"""


def _link_text(settings: Settings, link_token: str) -> str:
    warning = f"""
Your browser warns about the certificate unless it trusts {settings.data_dir / "ca.pem"}.
"""
    return f"""Open the pages as {ADMIN_EMAIL}. The link works once, for 24 hours:

  {sign_in_url(settings.base_url, link_token)}
{warning if settings.tls_cert is None else ""}"""


def _command(settings: Settings, words: str) -> str:
    return f"{shlex.quote(sys.argv[0])} {words} --data-dir {shlex.quote(str(settings.data_dir))}"


def _get_token(settings: Settings, client_id: str, client_secret: str) -> str:
    credentials = f"-u {client_id}:{client_secret} -d grant_type=client_credentials"
    return f"{_curl(settings)} {credentials} {settings.base_url}{TOKEN_PATH}"


def _call(settings: Settings) -> str:
    return f'{_curl(settings)} -H "Authorization: Bearer $TOKEN"'


def _curl(settings: Settings) -> str:
    if settings.tls_cert is not None:
        return "curl -sS"
    return f"curl -sS --cacert {shlex.quote(str(settings.data_dir / 'ca.pem'))}"
