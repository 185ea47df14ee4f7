"""`serve --demo`: something to try on an empty development database, and the lines to try it with.

Source: docs/interface.md section D9.
"""

import shlex
import sys

import click

from stoplist.actor import ADMINISTER, Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.oauth.credentials import create_credential, list_credentials
from stoplist.oauth.model import Credential
from stoplist.organizations.organizations import create_organization, list_organizations
from stoplist.settings import Settings
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import BadItem, Item, Named, Stores
from stoplist.unsubscribes.submit import submit
from stoplist.web.exchange import API_PATH, DOCS_PATH, TOKEN_PATH

SLUG = "demo"
_OPT_OUTS: dict[str, list[Item | BadItem]] = {
    "email": [
        Item(address="carla@example.org", occurred_at="2026-03-01T09:30:00Z", source="link in the newsletter"),
        Item(address="dmitri@example.net", occurred_at="2026-04-12T17:05:00Z", reason="complaint"),
        Item(address="ewa@example.com", occurred_at="2026-05-20T06:45:00Z", reason="bounce"),
    ],
    "sms": [Item(address="+14155550123", occurred_at="2026-02-14T20:15:00Z", reason="stop_keyword", source="STOP")],
    "phone": [Item(address="+447700900123", occurred_at="2026-06-03T11:00:00Z", reason="manual", source="said so")],
}
_ACTOR = Actor(kind="system", id="serve --demo", may=frozenset((ADMINISTER,)))


async def show(settings: Settings, database: Database, clock: Clock) -> None:
    """Fill an empty database, and say what is there and how to try it."""
    click.echo(await _prepare(settings, database, clock))


async def _prepare(settings: Settings, database: Database, clock: Clock) -> str:
    if await list_organizations(_ACTOR, database):
        return await _what_exists(settings, database)
    await create_organization(_ACTOR, database, clock, slug=SLUG, name="Demo", default_group="Newsletter")
    created = await create_credential(_ACTOR, database, clock, label="Demo", organizations=[SLUG])
    await _opt_some_out(database, clock, created.credential)
    return _first_lines(settings, created.credential.client_id, created.client_secret)


async def _opt_some_out(database: Database, clock: Clock, key: Credential) -> None:
    """There is something to list on every channel, sent with the demo's own key."""
    actor = Actor(kind="client", id=key.client_id, may=frozenset(key.permissions))
    stores = Stores(database=database, clock=clock, secret_keys=())
    for channel, items in _OPT_OUTS.items():
        await submit(actor, stores, CHANNELS[channel], Named(), items)


def _first_lines(settings: Settings, client_id: str, client_secret: str) -> str:
    only_token = """sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/'"""
    two_items = '{"items": [{"address": "Ann@Example.com"}, {"address": "bob@example.com", "reason": "complaint"}]}'
    operation = f"{settings.base_url}{API_PATH}/unsubscribe/email"
    return f"""
Stoplist runs at {settings.base_url} with an organization "{SLUG}", a key for it and a few opt-outs:

  client_id      {client_id}
  client_secret  {client_secret}   (shown this once: keep it)

Paste these lines into another terminal, in this folder.
A token, kept in a variable for its 15 minutes:

  TOKEN=$({_get_token(settings, client_id, client_secret)} | {only_token})

Two people opt out:

  {_call(settings)} -H 'Content-Type: application/json' -d '{two_items}' {operation}

Everyone who did:

  {_call(settings)} {operation}

What else can be done: {settings.base_url}{DOCS_PATH}
Stop with Ctrl+C. The key works after the next start, too.
"""


async def _what_exists(settings: Settings, database: Database) -> str:
    slugs = [organization.slug for organization in await list_organizations(_ACTOR, database)]
    keys = [f"{known.client_id} ({known.label})" for known in await list_credentials(_ACTOR, database)]
    data_dir = shlex.quote(str(settings.data_dir))
    return f"""
Stoplist runs at {settings.base_url}. Its database exists already:

  organizations  {", ".join(slugs)}
  keys           {", ".join(keys) or "none"}

Their secrets are not shown again. Another key:

  {shlex.quote(sys.argv[0])} key create --data-dir {data_dir} --label Another --org {slugs[0]}

A token, with a key:

  {_get_token(settings, "CLIENT_ID", "CLIENT_SECRET")}

What can be done with it: {settings.base_url}{DOCS_PATH}
Stop with Ctrl+C.
"""


def _get_token(settings: Settings, client_id: str, client_secret: str) -> str:
    credentials = f"-u {client_id}:{client_secret} -d grant_type=client_credentials"
    return f"{_curl(settings)} {credentials} {settings.base_url}{TOKEN_PATH}"


def _call(settings: Settings) -> str:
    return f'{_curl(settings)} -H "Authorization: Bearer $TOKEN"'


def _curl(settings: Settings) -> str:
    if settings.tls_cert is not None:
        return "curl -sS"
    return f"curl -sS --cacert {shlex.quote(str(settings.data_dir / 'ca.pem'))}"
