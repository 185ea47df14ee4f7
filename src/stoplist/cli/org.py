"""`stoplist org`: organizations."""

from typing import Any

import click

from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import data_dir_option, run
from stoplist.cli.parameters import NAME, SLUG
from stoplist.cli.printing import json_option, print_record, print_records, rfc3339
from stoplist.organizations import groups, organizations
from stoplist.organizations.model import Organization


@click.group("org", cls=CommandGroup)
def command() -> None:
    """Manage organizations, which send messages that people opt out of.

    An organization has a slug (its permanent name in requests), a name for people, and optionally a default group for
    opt-outs that name no group. Organizations are never deleted, only closed.
    """


@command.command("create")
@click.argument("slug", type=SLUG)
@click.option("--name", required=True, type=NAME, help="The name to show to people.")
@click.option("--default-group", type=NAME, metavar="NAME", help="Also create this group, as the default group.")
@data_dir_option
@json_option
def create(slug: str, name: str, default_group: str | None, data_dir: str | None, as_json: bool) -> None:
    """Create an organization.

    Example: stoplist org create acme-shoes --name "Acme Shoes" --default-group Newsletter
    """
    created = run(
        data_dir,
        lambda context: organizations.create_organization(
            context.actor, context.database, context.clock, slug=slug, name=name, default_group=default_group
        ),
    )
    print_record(
        {"slug": created.slug, "name": created.name, "default_group_id": created.default_group_id}, as_json=as_json
    )


@command.command("list")
@data_dir_option
@json_option
def list_(data_dir: str | None, as_json: bool) -> None:
    """List all organizations, closed ones included."""
    found = run(data_dir, lambda context: organizations.list_organizations(context.actor, context.database))
    print_records(
        [_to_record(organization) for organization in found],
        columns=("slug", "name", "default_group_id", "closed_at"),
        as_json=as_json,
        if_empty="There is no organization yet. `stoplist org create` creates one.",
    )


@command.command("rename")
@click.argument("slug")
@click.option("--name", required=True, type=NAME, help="The new name to show to people. The slug never changes.")
@data_dir_option
@json_option
def rename(slug: str, name: str, data_dir: str | None, as_json: bool) -> None:
    """Rename an organization."""
    renamed = run(
        data_dir,
        lambda context: organizations.rename_organization(
            context.actor, context.database, context.clock, slug=slug, name=name
        ),
    )
    print_record(_to_record(renamed), as_json=as_json)


@command.command("close")
@click.argument("slug")
@data_dir_option
@json_option
def close(slug: str, data_dir: str | None, as_json: bool) -> None:
    """Close an organization permanently.

    Requests for the organization are refused from then on. Its records stay, and its slug stays taken.
    """
    closed = run(
        data_dir,
        lambda context: organizations.close_organization(context.actor, context.database, context.clock, slug=slug),
    )
    print_record(_to_record(closed), as_json=as_json)


@command.command("set-default-group")
@click.argument("slug")
@click.argument("group_id")
@data_dir_option
@json_option
def set_default_group(slug: str, group_id: str, data_dir: str | None, as_json: bool) -> None:
    """Choose the group for opt-outs that name none."""
    group = run(
        data_dir,
        lambda context: groups.set_default_group(
            context.actor, context.database, context.clock, org_slug=slug, group_id=group_id
        ),
    )
    print_record({"slug": slug, "default_group_id": group.group_id}, as_json=as_json)


def _to_record(organization: Organization) -> dict[str, Any]:
    return {
        "slug": organization.slug,
        "name": organization.name,
        "default_group_id": organization.default_group_id,
        "created_at": rfc3339(organization.created_ms),
        "closed_at": rfc3339(organization.closed_ms),
    }
