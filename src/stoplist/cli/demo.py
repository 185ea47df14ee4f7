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
from stoplist.organizations.organizations import create_organization, list_organizations
from stoplist.settings import Settings
from stoplist.web.exchange import API_PATH, TOKEN_PATH

SLUG = "demo"
_ACTOR = Actor(kind="system", id="serve --demo", may=frozenset((ADMINISTER,)))


async def show(settings: Settings, database: Database, clock: Clock) -> None:
    """Fill an empty database, and say what is there and how to try it."""
    click.echo(await _prepare(settings, database, clock))


async def _prepare(settings: Settings, database: Database, clock: Clock) -> str:
    if await list_organizations(_ACTOR, database):
        return await _what_exists(settings, database)
    await create_organization(_ACTOR, database, clock, slug=SLUG, name="Demo", default_group="Newsletter")
    created = await create_credential(_ACTOR, database, clock, label="Demo", organizations=[SLUG])
    return _first_lines(settings, created.credential.client_id, created.client_secret)


def _first_lines(settings: Settings, client_id: str, client_secret: str) -> str:
    get_token = (
        f"{_curl(settings)} -u {client_id}:{client_secret} -d grant_type=client_credentials "
        f"{settings.base_url}{TOKEN_PATH}"
    )
    only_token = """sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/'"""
    return f"""
Stoplist runs at {settings.base_url} with an organization "{SLUG}" and a key for it:

  client_id      {client_id}
  client_secret  {client_secret}   (shown this once: keep it)

Paste these lines into another terminal, in this folder.
A token, with the key:

  {get_token}

The same, kept in a variable for 15 minutes:

  TOKEN=$({get_token} | {only_token})

The API, with the token (its operations come with the next release: until then it answers 404 to who may enter):

  {_curl(settings)} -i -H "Authorization: Bearer $TOKEN" {settings.base_url}{API_PATH}/unsubscribe/email

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

  {_curl(settings)} -u CLIENT_ID:CLIENT_SECRET -d grant_type=client_credentials {settings.base_url}{TOKEN_PATH}

Stop with Ctrl+C.
"""


def _curl(settings: Settings) -> str:
    if settings.tls_cert is not None:
        return "curl -sS"
    return f"curl -sS --cacert {shlex.quote(str(settings.data_dir / 'ca.pem'))}"
