"""`stoplist-client login`: store a key, once it was seen to work."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from stoplist_client.cli import keyring_secret
from stoplist_client.cli.address_lines import standard_input
from stoplist_client.cli.context import opened
from stoplist_client.cli.exit_status import Failed, tell
from stoplist_client.cli.messages import spoken
from stoplist_client.cli.options import A_FILE, Command, as_group, common_options
from stoplist_client.cli.printing import print_line
from stoplist_client.cli.profile import Profile, store, stored_if_any
from stoplist_client.cli.profile_selection import named_or_default, secret_in, variable
from stoplist_client.client import Client
from stoplist_client.errors import (
    BadRequest,
    ConfigurationError,
    DefaultGroupNotConfigured,
    InsufficientScope,
    InvalidItem,
    UnauthorizedOrganization,
)
from stoplist_client.model import CHANNELS
from stoplist_client.secret import Secret
from stoplist_client.tokens.stores import MemoryStore
from stoplist_client.transport.wire import checked_base_url


@click.command("login", cls=Command)
@click.option("--base-url", envvar="STOPLISTCLIENT_BASE_URL", metavar="URL", help="As https://stoplist.example.com.")
@click.option("--client-id", envvar="STOPLISTCLIENT_CLIENT_ID", metavar="ID", help="The client_id of the key.")
@click.option("--secret-stdin", is_flag=True, help="Read the client_secret from stdin.")
@click.option(
    "--secret-file",
    type=A_FILE,
    envvar="STOPLISTCLIENT_CLIENT_SECRET_FILE",
    metavar="FILE",
    help="Read the client_secret from a file.",
)
@click.option("--org", envvar="STOPLISTCLIENT_ORG", metavar="SLUG", help="The organization that is meant by default.")
@click.option(
    "--group",
    callback=as_group,
    envvar="STOPLISTCLIENT_GROUP",
    metavar="ID",
    help="The group (grp_…) that is meant by default.",
)
@click.option(
    "--ca-file",
    type=A_FILE,
    envvar="STOPLISTCLIENT_CA_FILE",
    metavar="FILE",
    help="The certificates to trust (PEM); for a server in development its data/ca.pem.",
)
@click.option("--keyring", "in_keyring", is_flag=True, help="Keep secret and tokens in the keyring of this system.")
@common_options
def command(
    base_url: str | None,
    client_id: str | None,
    secret_stdin: bool,
    secret_file: Path | None,
    org: str | None,
    group: str | None,
    ca_file: Path | None,
    in_keyring: bool,
    profile_name: str | None,
) -> None:
    """Store a key, so that every other command can work with it.

    What is not given as an option or variable is asked for. The secret is never an option: it is typed without echo, or
    comes from --secret-stdin, --secret-file or STOPLISTCLIENT_CLIENT_SECRET. Key, organization and group are tried out
    before anything is stored; an earlier profile of that name is then replaced.

    \b
    Examples:
      stoplist-client login
      stoplist-client login --base-url https://stoplist.example.com --client-id svc_ci_… --secret-file key.txt
    """
    name = profile_name or named_or_default()
    if secret_stdin and secret_file:
        raise click.UsageError("Give --secret-stdin or --secret-file, not both.")
    asks = sys.stdin is not None and sys.stdin.isatty()
    earlier = stored_if_any(name) if asks else None
    if base_url is None:
        base_url = _asked(
            "Base address (https://…)", "--base-url", asks, earlier.base_url if earlier else None, _as_base_url
        )
    base_url = checked_base_url(base_url.strip())  # before the secret is asked for
    client_id = client_id or _asked("client_id", "--client-id", asks, earlier.client_id if earlier else None)
    secret = _secret(secret_stdin, secret_file, asks)
    if asks:
        org = org or _asked_if_any("Organization (its slug; empty: the key's default)")
        group = group or _asked_if_any("Group (its id; empty: the organization's default)")
        ca_file = ca_file or _as_path(_asked_if_any("File of certificates to trust (empty: those of this system)"))
    profile = Profile(
        name=name,
        base_url=base_url,
        client_id=client_id.strip(),
        client_secret=secret,
        org_slug=org,
        group_id=group,
        ca_file=None if ca_file is None else os.fspath(ca_file.absolute()),
    )
    found = _tried(profile, secret, asks=asks)
    profile = msgspec.structs.replace(profile, org_slug=profile.org_slug or found.org_slug)
    if in_keyring:
        keyring_secret.store(profile.base_url, profile.client_id, secret)
        profile = msgspec.structs.replace(profile, client_secret=None)
    path = store(name, profile)
    print_line(f"Logged in as {profile.client_id} at {profile.base_url}.")
    print_line(f"Organization: {profile.org_slug or 'the default of the key'}.")
    print_line(f"Stored as profile {name} in {path}.")
    if found.may_read and not profile.org_slug:
        tell(
            "No record shows the slug of that organization yet, and sync will need it: "
            "name it with `stoplist-client sync --org SLUG`, or log in again with --org."
        )
    if not found.may_read:
        tell("This key lacks the permission `read`: look-up and sync will be refused.")


class _Found(NamedTuple):
    org_slug: str | None
    may_read: bool


def _tried(profile: Profile, secret: Secret, *, asks: bool) -> _Found:
    """What the service says to this key, organization and group; the error if it refuses them. It stores nothing.

    Tokens that are kept are left out of it: they would answer for a wrong secret.
    """
    with opened(profile, secret, MemoryStore()) as client:
        try:
            org_slug = _org_of_records(client)
        except InsufficientScope:
            # Text without an @ is no address, so nothing is stored; organization and group are looked at before.
            with suppress(InvalidItem, DefaultGroupNotConfigured):
                client.unsubscribe("email", ["no address"])
            return _Found(None, may_read=False)
        if org_slug is None and asks:
            org_slug = _asked_org(client)
    return _Found(org_slug, may_read=True)


def _org_of_records(client: Client) -> str | None:
    """The organization that calls are about: as it was named, or as the first record of a channel tells it."""
    for channel in CHANNELS:
        page = next(iter(client.changes(channel, limit=1).pages()))
        if client.org_slug:
            return client.org_slug
        if page.records:
            return page.records[0].org_slug
    return None


def _asked_org(client: Client) -> str | None:
    """The organization that was typed, once the service took it."""
    tell("There is no record yet that shows which organization is the key's default.")
    while slug := _asked_if_any("Organization (its slug; sync will need it; empty: say it later)"):
        try:
            next(iter(client.changes("email", org_slug=slug, limit=1).pages()))
        except (UnauthorizedOrganization, BadRequest, ConfigurationError) as error:
            tell(spoken(error))
            continue
        return slug
    return None


def _secret(from_stdin: bool, file: Path | None, asks: bool) -> Secret:
    if from_stdin and not asks:  # on a terminal it would be seen
        text = standard_input("the client_secret").readline().decode(errors="replace").strip()
        if not text:
            raise Failed("stdin holds no secret: it must be its first line.")
        return Secret(text)
    if file is not None:
        return secret_in(file)
    if text := variable("CLIENT_SECRET") or "":
        return Secret(text)
    if not asks:
        raise click.UsageError(
            "Without a terminal to ask on, the secret must come from --secret-stdin, --secret-file or "
            "STOPLISTCLIENT_CLIENT_SECRET."
        )
    return Secret(click.prompt("client_secret (not shown)", hide_input=True, err=True).strip())


def _asked(
    what: str, option: str, asks: bool, default: str | None, as_value: Callable[[str], str] | None = None
) -> str:
    if not asks:
        raise click.UsageError(f"Without a terminal to ask on, {option} is needed.")
    return str(click.prompt(what, default=default, value_proc=as_value, err=True))


def _as_base_url(text: str) -> str:
    """For a prompt: where it is none, it is asked for again."""
    try:
        return checked_base_url(text.strip())
    except ConfigurationError as error:
        raise click.UsageError(spoken(error)) from None


def _asked_if_any(what: str) -> str | None:
    return str(click.prompt(what, default="", show_default=False, err=True)).strip() or None


def _as_path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()
