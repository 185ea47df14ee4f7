"""`stoplist user`: the people who use the admin pages."""

from collections.abc import Awaitable, Callable
from typing import Any

import click

from stoplist.actor import ADMIN, VIEWER, Role
from stoplist.cli.context import data_dir_option, run, settings_of
from stoplist.cli.printing import json_option, must_show_secret, print_record, print_records, rfc3339
from stoplist.errors import Refused
from stoplist.staff import people
from stoplist.staff.model import NewLink, Person, checked_email
from stoplist.web.request_context import sign_in_url

_PASS_IT_ON = "The link is good once, for 24 hours, and is not shown again: give it to nobody but this person."


class _Email(click.ParamType[str]):
    """The e-mail address of a new person."""

    name = "email"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return checked_email(value)
        except Refused as refusal:
            self.fail(refusal.text, param, ctx)


@click.group("user")
def command() -> None:
    """People who use the admin pages.

    An administrator may do everything. Others have a role in organizations: admin or viewer. Somebody new, and whoever
    forgot his password, gets a link by which he chooses one. Nobody is ever deleted: a person is disabled.
    """


@command.command("create")
@click.argument("email", type=_Email())
@click.option("--administrator", is_flag=True, help="May do everything, in every organization.")
@click.option("--org", "org_slug", metavar="SLUG", help="An organization that the person has a role in.")
@click.option("--role", type=click.Choice((ADMIN, VIEWER)), help="The role in it.")
@data_dir_option
@json_option
def create(
    email: str, administrator: bool, org_slug: str | None, role: Role | None, data_dir: str | None, as_json: bool
) -> None:
    """Create a person. The link by which he chooses his password is shown this once.

    Example: stoplist user create ann@example.org --org acme-shoes --role admin
    """
    if (org_slug is None) != (role is None):
        raise click.UsageError("--org and --role go together: give both or neither.")
    if org_slug is None and not administrator:
        raise click.UsageError("Give --administrator, or --org and --role: somebody without any right sees nothing.")
    must_show_secret()
    created = run(
        data_dir,
        lambda opened: people.create_person(
            opened.actor,
            opened.database,
            opened.clock,
            email=email,
            is_administrator=administrator,
            org_slug=org_slug,
            role=role,
        ),
    )
    _print_link(created, data_dir, as_json)


@command.command("list")
@data_dir_option
@json_option
def list_(data_dir: str | None, as_json: bool) -> None:
    """List all people, by address."""
    known = run(data_dir, lambda opened: people.list_people(opened.actor, opened.database))
    print_records(
        [_shown(person, as_json) for person in known],
        columns=("email", "administrator", "roles", "disabled", "two_step", "last_sign_in_at"),
        as_json=as_json,
        none="There is nobody yet: `stoplist user create` makes somebody.",
    )


@command.command("link")
@click.argument("email")
@click.option("--without-two-step", is_flag=True, help="Whoever uses the link is asked for no code from then on.")
@data_dir_option
@json_option
def link(email: str, without_two_step: bool, data_dir: str | None, as_json: bool) -> None:
    """Make a new sign-in link, by which the person chooses another password. Earlier links are dead.

    The password of before stays good until the link is used.
    """
    must_show_secret()
    made = run(
        data_dir,
        lambda opened: people.new_link(
            opened.actor, opened.database, opened.clock, email=email, without_two_step=without_two_step
        ),
    )
    _print_link(made, data_dir, as_json)


@command.command("disable")
@click.argument("email")
@data_dir_option
@json_option
def disable(email: str, data_dir: str | None, as_json: bool) -> None:
    """Close the door to a person: his sessions and links have ended at once."""
    _change(data_dir, as_json, people.disable_person, email)


@command.command("enable")
@click.argument("email")
@data_dir_option
@json_option
def enable(email: str, data_dir: str | None, as_json: bool) -> None:
    """Open the door again: the password and the rights of before are good."""
    _change(data_dir, as_json, people.enable_person, email)


def _change(data_dir: str | None, as_json: bool, operation: Callable[..., Awaitable[Person]], email: str) -> None:
    changed = run(data_dir, lambda opened: operation(opened.actor, opened.database, opened.clock, email=email))
    print_record(_shown(changed, as_json), as_json=as_json)


def _print_link(made: NewLink, data_dir: str | None, as_json: bool) -> None:
    print_record(
        {
            "email": made.person.email,
            "sign_in_url": sign_in_url(settings_of(data_dir).base_url, made.link_token),
            "expires_at": rfc3339(made.expires_ms),
        },
        as_json=as_json,
    )
    click.echo(_PASS_IT_ON, err=True)


def _shown(person: Person, as_json: bool) -> dict[str, Any]:
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
