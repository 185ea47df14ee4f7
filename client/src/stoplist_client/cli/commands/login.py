"""`stoplist-client login`: check a key and store it."""

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
from stoplist_client.cli.context import make_client
from stoplist_client.cli.exit_status import Failed, print_notice
from stoplist_client.cli.messages import message_of
from stoplist_client.cli.options import FILE_PATH, Command, common_options, parse_group
from stoplist_client.cli.printing import print_line
from stoplist_client.cli.profile import Profile, find_profile, save_profile
from stoplist_client.cli.profile_selection import default_profile_name, read_secret_file, variable
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
@click.option(
    "--base-url", envvar="STOPLISTCLIENT_BASE_URL", metavar="URL", help="Such as https://stoplist.example.com."
)
@click.option("--client-id", envvar="STOPLISTCLIENT_CLIENT_ID", metavar="ID", help="The client_id of the key.")
@click.option("--secret-stdin", is_flag=True, help="Read the client_secret from stdin.")
@click.option(
    "--secret-file",
    type=FILE_PATH,
    envvar="STOPLISTCLIENT_CLIENT_SECRET_FILE",
    metavar="FILE",
    help="Read the client_secret from a file.",
)
@click.option("--org", envvar="STOPLISTCLIENT_ORG", metavar="SLUG", help="The default organization of the profile.")
@click.option(
    "--group",
    callback=parse_group,
    envvar="STOPLISTCLIENT_GROUP",
    metavar="ID",
    help="The default group (grp_…) of the profile.",
)
@click.option(
    "--ca-file",
    type=FILE_PATH,
    envvar="STOPLISTCLIENT_CA_FILE",
    metavar="FILE",
    help="The CA certificates to trust (PEM); for a development server, its data/ca.pem.",
)
@click.option("--keyring", "in_keyring", is_flag=True, help="Keep secret and tokens in the system keyring.")
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
    """Check a key, and store it as a profile for the other commands.

    On a terminal, login asks for the values that no option or variable gives. The secret cannot be an option: type it
    without echo, or pass it with --secret-stdin, --secret-file or STOPLISTCLIENT_CLIENT_SECRET. Key, organization and
    group are checked with the service before the profile is stored. A profile of the same name is replaced.

    \b
    Examples:
      stoplist-client login
      stoplist-client login --base-url https://stoplist.example.com --client-id svc_ci_… --secret-file key.txt
    """
    name = profile_name or default_profile_name()
    if secret_stdin and secret_file:
        raise click.UsageError("Give --secret-stdin or --secret-file, not both.")
    is_interactive = sys.stdin is not None and sys.stdin.isatty()
    previous = find_profile(name) if is_interactive else None
    if base_url is None:
        base_url = _prompt(
            "Base address of the service (https://…)",
            "--base-url",
            is_interactive,
            previous.base_url if previous else None,
            _parse_base_url,
        )
    base_url = checked_base_url(base_url.strip())  # checked before the secret is typed
    client_id = client_id or _prompt(
        "client_id", "--client-id", is_interactive, previous.client_id if previous else None
    )
    secret = _read_secret(secret_stdin, secret_file, is_interactive)
    if is_interactive:
        org = org or _prompt_optional("Organization slug (empty: the key's default)")
        group = group or _prompt_optional("Group id (empty: the organization's default)")
        ca_file = ca_file or _as_path(_prompt_optional("File of CA certificates to trust (empty: the system's)"))
    profile = Profile(
        name=name,
        base_url=base_url,
        client_id=client_id.strip(),
        client_secret=secret,
        org_slug=org,
        group_id=group,
        ca_file=None if ca_file is None else os.fspath(ca_file.absolute()),
    )
    verified = _verify(profile, secret, is_interactive=is_interactive)
    profile = msgspec.structs.replace(profile, org_slug=profile.org_slug or verified.org_slug)
    _store(name, profile, secret, in_keyring=in_keyring)
    if verified.may_read and not profile.org_slug:
        print_notice(
            "The slug of the key's default organization is not known yet, because it has no records. sync needs it: "
            "use `stoplist-client sync --org SLUG`, or log in again with --org."
        )
    if not verified.may_read:
        print_notice("This key does not have the permission `read`: look-up and sync will be refused.")


class _Verified(NamedTuple):
    org_slug: str | None
    may_read: bool


def _verify(profile: Profile, secret: Secret, *, is_interactive: bool) -> _Verified:
    """Check key, organization and group with the service. Raises the error if the service refuses them.

    Submits nothing. Ignores stored tokens, which would hide a wrong secret.
    """
    with make_client(profile, secret, MemoryStore()) as client:
        try:
            org_slug = _org_from_records(client)
        except InsufficientScope:
            # Text without an @ is not an address, so nothing is stored; organization and group are checked first.
            with suppress(InvalidItem, DefaultGroupNotConfigured):
                client.unsubscribe("email", ["no address"])
            return _Verified(None, may_read=False)
        if org_slug is None and is_interactive:
            org_slug = _prompt_org(client)
    return _Verified(org_slug, may_read=True)


def _org_from_records(client: Client) -> str | None:
    """Return the slug that the client was given, or that of the first record of any channel, or None."""
    for channel in CHANNELS:
        page = next(iter(client.changes(channel, limit=1).pages()))
        if client.org_slug:
            return client.org_slug
        if page.records:
            return page.records[0].org_slug
    return None


def _prompt_org(client: Client) -> str | None:
    """Ask for the organization until the service accepts the answer; None if it is left empty."""
    print_notice("The slug of the key's default organization is not known yet, because it has no records.")
    while slug := _prompt_optional("Organization slug (sync needs it; empty: set it later)"):
        try:
            next(iter(client.changes("email", org_slug=slug, limit=1).pages()))
        except (UnauthorizedOrganization, BadRequest, ConfigurationError) as error:
            print_notice(message_of(error))
            continue
        return slug
    return None


def _store(name: str, profile: Profile, secret: Secret, *, in_keyring: bool) -> None:
    """Store the profile, its secret where the user wants it, and say so."""
    if in_keyring:
        keyring_secret.store(profile.base_url, profile.client_id, secret)
        profile = msgspec.structs.replace(profile, client_secret=None)
    path = save_profile(name, profile)
    print_line(f"Logged in as {profile.client_id} at {profile.base_url}.")
    print_line(f"Organization: {profile.org_slug or 'the default of the key'}.")
    print_line(f"Stored as profile {name} in {path}.")


def _read_secret(from_stdin: bool, file: Path | None, is_interactive: bool) -> Secret:
    if from_stdin and not is_interactive:  # on a terminal, use the prompt, which does not echo
        text = standard_input("the client_secret").readline().decode(errors="replace").strip()
        if not text:
            raise Failed("stdin contains no secret: pass it as the first line.")
        return Secret(text)
    if file is not None:
        return read_secret_file(file)
    if text := variable("CLIENT_SECRET") or "":
        return Secret(text)
    if not is_interactive:
        raise click.UsageError(
            "stdin is not a terminal: pass the secret with --secret-stdin, --secret-file or "
            "STOPLISTCLIENT_CLIENT_SECRET."
        )
    return Secret(click.prompt("client_secret (not shown)", hide_input=True, err=True).strip())


def _prompt(
    question: str, option: str, is_interactive: bool, default: str | None, parse: Callable[[str], str] | None = None
) -> str:
    if not is_interactive:
        raise click.UsageError(f"stdin is not a terminal: {option} is required.")
    return str(click.prompt(question, default=default, value_proc=parse, err=True))


def _parse_base_url(text: str) -> str:
    """Return the base address, or raise UsageError, which makes the prompt ask again."""
    try:
        return checked_base_url(text.strip())
    except ConfigurationError as error:
        raise click.UsageError(message_of(error)) from None


def _prompt_optional(question: str) -> str | None:
    return str(click.prompt(question, default="", show_default=False, err=True)).strip() or None


def _as_path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()
