"""`stoplist group`: the kinds of message that people can leave on their own."""

from typing import Any

import click

from stoplist.cli.context import data_dir_option, run
from stoplist.cli.parameters import NAME
from stoplist.cli.printing import json_option, print_record, print_records, rfc3339
from stoplist.organizations import groups
from stoplist.organizations.model import Group


@click.group("group")
def command() -> None:
    """Groups: the kinds of message of an organization (newsletter, reminders) that people can leave one by one.

    Nothing is ever deleted: a group is retired.
    """


@command.command("create")
@click.option("--org", "org_slug", required=True, metavar="SLUG", help="The organization.")
@click.option("--name", required=True, type=NAME, help="The name, unique in the organization.")
@click.option("--default", "is_default", is_flag=True, help="Opt-outs that name no group go to this one.")
@data_dir_option
@json_option
def create(org_slug: str, name: str, is_default: bool, data_dir: str | None, as_json: bool) -> None:
    """Create a group.

    Example: stoplist group create --org acme-shoes --name Reminders
    """
    created = run(
        data_dir,
        lambda opened: groups.create_group(
            opened.actor, opened.database, opened.clock, org_slug=org_slug, name=name, is_default=is_default
        ),
    )
    print_record(
        {
            "group_id": created.group_id,
            "org_slug": created.org_slug,
            "name": created.name,
            "is_default": created.is_default,
        },
        as_json=as_json,
    )


@command.command("list")
@click.option("--org", "org_slug", required=True, metavar="SLUG", help="The organization.")
@data_dir_option
@json_option
def list_(org_slug: str, data_dir: str | None, as_json: bool) -> None:
    """List the groups of an organization, retired ones included."""
    known = run(data_dir, lambda opened: groups.list_groups(opened.actor, opened.database, org_slug=org_slug))
    print_records(
        [_shown(group) for group in known],
        columns=("group_id", "name", "is_default", "retired_at"),
        as_json=as_json,
        none=f"The organization {org_slug} has no group yet: `stoplist group create` makes one.",
    )


@command.command("retire")
@click.argument("group_id")
@data_dir_option
@json_option
def retire(group_id: str, data_dir: str | None, as_json: bool) -> None:
    """Retire a group for good.

    Requests for it are refused from then on; its records stay. If it was the default group, the organization is left
    without one, and opt-outs that name no group are refused until another is chosen.
    """
    retired = run(
        data_dir,
        lambda opened: groups.retire_group(opened.actor, opened.database, opened.clock, group_id=group_id),
    )
    print_record(_shown(retired), as_json=as_json)


def _shown(group: Group) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "org_slug": group.org_slug,
        "name": group.name,
        "is_default": group.is_default,
        "created_at": rfc3339(group.created_ms),
        "retired_at": rfc3339(group.retired_ms),
    }
