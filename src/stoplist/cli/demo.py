"""`serve --demo`: something to try on an empty development database, and the lines to try it with.

Source: docs/interface.md section D9.
"""

import shlex
import sys

import click

from stoplist.actor import ADMINISTER, Actor
from stoplist.cli import demo_history
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.oauth.credentials import create_credential, list_credentials
from stoplist.oauth.model import Credential
from stoplist.organizations.organizations import create_organization, list_organizations
from stoplist.settings import Settings
from stoplist.staff.people import create_person, list_people, new_link
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import BadItem, Item, OptOutStores, RequestedTarget
from stoplist.unsubscribes.submit import submit
from stoplist.web.request_context import API_PATH, DOCS_PATH, SIGN_IN_PATH, TOKEN_PATH, sign_in_url

SLUG = "demo"
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
_ACTOR = Actor(kind="system", id="serve --demo", may=frozenset((ADMINISTER,)))


async def show(settings: Settings, database: Database, clock: Clock) -> None:
    """Fill an empty database, and say what is there and how to try it."""
    click.echo(await _prepare(settings, database, clock))


async def _prepare(settings: Settings, database: Database, clock: Clock) -> str:
    if await list_organizations(_ACTOR, database):
        return await _what_exists(settings, database, clock)
    await demo_history.fill(_ACTOR, database, clock)
    await create_organization(_ACTOR, database, clock, slug=SLUG, name="Demo", default_group="Newsletter")
    created = await create_credential(_ACTOR, database, clock, label="Demo", organizations=[SLUG])
    await _opt_some_out(database, clock, created.credential)
    link = await create_person(_ACTOR, database, clock, email=ADMIN_EMAIL, is_administrator=True)
    way_in = _link(settings, link.link_token)
    return _first_lines(settings, way_in, created.credential.client_id, created.client_secret)


async def _opt_some_out(database: Database, clock: Clock, key: Credential) -> None:
    """There is something to list on every channel, sent with the demo's own key."""
    actor = Actor(kind="client", id=key.client_id, may=frozenset(key.permissions))
    stores = OptOutStores(database=database, clock=clock, secret_keys=())
    for channel, items in _OPT_OUTS.items():
        await submit(actor, stores, CHANNELS[channel], RequestedTarget(), items)


def _first_lines(settings: Settings, way_in: str, client_id: str, client_secret: str) -> str:
    only_token = """sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/'"""
    two_items = '{"items": [{"address": "Ann@Example.com"}, {"address": "bob@example.com", "reason": "complaint"}]}'
    operation = f"{settings.base_url}{API_PATH}/unsubscribe/email"
    return f"""
Stoplist runs at {settings.base_url}, with two months of made-up opt-outs.

{way_in}
It has an organization "{SLUG}", and a key for it to try the API with:

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


async def _what_exists(settings: Settings, database: Database, clock: Clock) -> str:
    slugs = [organization.slug for organization in await list_organizations(_ACTOR, database)]
    keys = [f"{known.client_id} ({known.label})" for known in await list_credentials(_ACTOR, database)]
    return f"""
Stoplist runs at {settings.base_url}.

{await _way_in(settings, database, clock)}
Its database exists already:

  organizations  {", ".join(slugs)}
  keys           {", ".join(keys) or "none"}

Their secrets are not shown again. Another key:

  {_command(settings, "key create")} --label Another --org {slugs[0]}

A token, with a key:

  {_get_token(settings, "CLIENT_ID", "CLIENT_SECRET")}

What can be done with it: {settings.base_url}{DOCS_PATH}
Stop with Ctrl+C.
"""


async def _way_in(settings: Settings, database: Database, clock: Clock) -> str:
    """How somebody gets to the pages: the administrator of the demo by a link, until he has chosen a password."""
    people = await list_people(_ACTOR, database)
    if not people:
        return f"""Nobody can sign in to its pages yet. An administrator:

  {_command(settings, "user create")} --administrator YOU@EXAMPLE.ORG
"""
    if any(one.email == ADMIN_EMAIL and not (one.has_password or one.is_disabled) for one in people):
        link = await new_link(_ACTOR, database, clock, email=ADMIN_EMAIL)
        return _link(settings, link.link_token)
    return f"""Sign in to its pages:

  {settings.base_url}{SIGN_IN_PATH}
"""


def _link(settings: Settings, link_token: str) -> str:
    warning = f"""
Your browser warns of the certificate, unless it was told to trust {settings.data_dir / "ca.pem"}.
"""
    return f"""Open its pages as {ADMIN_EMAIL}; the link is good once, for 24 hours:

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
