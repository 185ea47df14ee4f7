"""`stoplist user`: manages the people who use the admin pages."""

from collections.abc import Awaitable, Callable
from typing import Any

import click

from stoplist.actor import ADMIN, VIEWER, Role
from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import data_dir_option, run, settings_of
from stoplist.cli.printing import json_option, print_record, print_records, require_open_stdout, rfc3339
from stoplist.errors import Refused
from stoplist.secret_key import existing_secret_keys, is_key_missing
from stoplist.staff import people
from stoplist.staff.model import NewLink, Person, checked_email
from stoplist.web.request_context import sign_in_url

_KEEP_LINK_PRIVATE = "The link is good once, for 24 hours, and is not shown again. Give it to this person only."


class _Email(click.ParamType[str]):
    """The e-mail address of a new person."""

    name = "email"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return checked_email(value)
        except Refused as refusal:
            self.fail(refusal.text, param, ctx)


@click.group("user", cls=CommandGroup)
def command() -> None:
    """Manage the people who use the admin pages.

    An administrator may do everything. Others have a role in organizations: admin or viewer. A new person, and one who
    forgot the password, gets a link to choose a password. People are never deleted, only disabled.
    """


@command.command("create")
@click.argument("email", type=_Email())
@click.option("--administrator", is_flag=True, help="The person may do everything, in every organization.")
@click.option("--org", "org_slug", metavar="SLUG", help="An organization that the person has a role in.")
@click.option("--role", type=click.Choice((ADMIN, VIEWER)), help="The role in that organization.")
@data_dir_option
@json_option
def create(
    email: str, administrator: bool, org_slug: str | None, role: Role | None, data_dir: str | None, as_json: bool
) -> None:
    """Create a person. Prints a link to choose a password, which is shown only once.

    Example: stoplist user create ann@example.org --org acme-shoes --role admin
    """
    if (org_slug is None) != (role is None):
        raise click.UsageError("--org and --role go together. Give both or neither.")
    if org_slug is None and not administrator:
        raise click.UsageError("Give --administrator, or --org and --role. A person without any right sees nothing.")
    require_open_stdout()
    created = run(
        data_dir,
        lambda context: people.create_person(
            context.actor,
            context.database,
            context.clock,
            email=email,
            is_administrator=administrator,
            org_slug=org_slug,
            role=role,
        ),
        prints_links=True,
    )
    _print_link(created, data_dir, as_json)


@command.command("list")
@data_dir_option
@json_option
def list_(data_dir: str | None, as_json: bool) -> None:
    """List all people, by address."""
    people_found = run(data_dir, lambda context: people.list_people(context.actor, context.database))
    print_records(
        [_to_record(person, as_json) for person in people_found],
        columns=("email", "administrator", "roles", "disabled", "two_step", "last_sign_in_at"),
        as_json=as_json,
        if_empty="There are no people yet. `stoplist user create` creates a person.",
    )


@command.command("link")
@click.argument("email")
@click.option("--without-two-step", is_flag=True, help="Using the link turns two-step sign-in off.")
@data_dir_option
@json_option
def link(email: str, without_two_step: bool, data_dir: str | None, as_json: bool) -> None:
    """Make a new sign-in link.

    The person can choose a new password by this link. Earlier links stop working; the password stays valid until the
    link is used.
    """
    require_open_stdout()
    new_link = run(
        data_dir,
        lambda context: people.new_link(
            context.actor,
            context.database,
            context.clock,
            email=email,
            without_two_step=without_two_step,
            secret_keys=existing_secret_keys(settings_of(data_dir)),
            # Hosts that share a PostgreSQL must be given the key, so a key that this command lacks may be known there.
            is_key_lost=context.database.kind == "sqlite" and is_key_missing(settings_of(data_dir)),
        ),
        prints_links=True,
    )
    _print_link(new_link, data_dir, as_json)


@command.command("disable")
@click.argument("email")
@data_dir_option
@json_option
def disable(email: str, data_dir: str | None, as_json: bool) -> None:
    """Disable a person. Ends their sessions and links at once."""
    _change(data_dir, as_json, people.disable_person, email)


@command.command("enable")
@click.argument("email")
@data_dir_option
@json_option
def enable(email: str, data_dir: str | None, as_json: bool) -> None:
    """Enable a person again, with the former password and rights."""
    _change(data_dir, as_json, people.enable_person, email)


def _change(data_dir: str | None, as_json: bool, operation: Callable[..., Awaitable[Person]], email: str) -> None:
    changed = run(data_dir, lambda context: operation(context.actor, context.database, context.clock, email=email))
    print_record(_to_record(changed, as_json), as_json=as_json)


def _print_link(new_link: NewLink, data_dir: str | None, as_json: bool) -> None:
    print_record(
        {
            "email": new_link.person.email,
            "sign_in_url": sign_in_url(settings_of(data_dir).base_url, new_link.link_token),
            "expires_at": rfc3339(new_link.expires_ms),
        },
        as_json=as_json,
    )
    click.echo(_KEEP_LINK_PRIVATE, err=True)


def _to_record(person: Person, as_json: bool) -> dict[str, Any]:
    return {
        "email": person.email,
        "administrator": person.is_administrator,
        "roles": person.roles if as_json else [f"{slug}:{role}" for slug, role in person.roles.items()],
        "disabled": person.is_disabled,
        "has_password": person.has_password,
        "two_step": person.has_two_step,
        "created_at": rfc3339(person.created_ms),
        "last_sign_in_at": rfc3339(person.last_sign_in_ms),
    }
