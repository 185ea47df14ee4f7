"""`stoplist group`: groups, the kinds of message that people can opt out of separately."""

from typing import Any

import click

from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import data_dir_option, run
from stoplist.cli.parameters import NAME
from stoplist.cli.printing import json_option, print_record, print_records, rfc3339
from stoplist.organizations import groups
from stoplist.organizations.model import Group


@click.group("group", cls=CommandGroup)
def command() -> None:
    """Manage groups: the kinds of message (newsletter, reminders) that people can opt out of separately.

    Groups are never deleted, only retired.
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
        lambda context: groups.create_group(
            context.actor, context.database, context.clock, org_slug=org_slug, name=name, is_default=is_default
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
    found = run(data_dir, lambda context: groups.list_groups(context.actor, context.database, org_slug=org_slug))
    print_records(
        [_to_record(group) for group in found],
        columns=("group_id", "name", "is_default", "retired_at"),
        as_json=as_json,
        if_empty=f"The organization {org_slug} has no group yet. `stoplist group create` creates one.",
    )


@command.command("retire")
@click.argument("group_id")
@data_dir_option
@json_option
def retire(group_id: str, data_dir: str | None, as_json: bool) -> None:
    """Retire a group permanently.

    Requests for the group are refused from then on; its records stay. If it was the default group, the organization has
    none until you choose another, and opt-outs that name no group are refused.
    """
    retired = run(
        data_dir,
        lambda context: groups.retire_group(context.actor, context.database, context.clock, group_id=group_id),
    )
    print_record(_to_record(retired), as_json=as_json)


def _to_record(group: Group) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "org_slug": group.org_slug,
        "name": group.name,
        "is_default": group.is_default,
        "created_at": rfc3339(group.created_ms),
        "retired_at": rfc3339(group.retired_ms),
    }
