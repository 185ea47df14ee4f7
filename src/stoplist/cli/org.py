"""`stoplist org`: organizations."""

from typing import Any

import click

from stoplist.cli.context import data_dir_option, run
from stoplist.cli.parameters import NAME, SLUG
from stoplist.cli.printing import json_option, print_record, print_records, rfc3339
from stoplist.organizations import groups, organizations
from stoplist.organizations.model import Organization


@click.group("org")
def command() -> None:
    """Organizations: those who send messages, and whose people opt out.

    An organization has a slug (its name in requests, for ever), a name, and perhaps a default group, which takes the
    opt-outs that name no group. Nothing is ever deleted: an organization is closed.
    """


@command.command("create")
@click.argument("slug", type=SLUG)
@click.option("--name", required=True, type=NAME, help="The name for people.")
@click.option("--default-group", type=NAME, metavar="NAME", help="Create this group too, as the default.")
@data_dir_option
@json_option
def create(slug: str, name: str, default_group: str | None, data_dir: str | None, as_json: bool) -> None:
    """Create an organization.

    Example: stoplist org create acme-shoes --name "Acme Shoes" --default-group Newsletter
    """
    created = run(
        data_dir,
        lambda opened: organizations.create_organization(
            opened.actor, opened.database, opened.clock, slug=slug, name=name, default_group=default_group
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
    known = run(data_dir, lambda opened: organizations.list_organizations(opened.actor, opened.database))
    print_records(
        [_shown(organization) for organization in known],
        columns=("slug", "name", "default_group_id", "closed_at"),
        as_json=as_json,
        none="There is no organization yet: `stoplist org create` makes one.",
    )


@command.command("rename")
@click.argument("slug")
@click.option("--name", required=True, type=NAME, help="The new name for people; the slug never changes.")
@data_dir_option
@json_option
def rename(slug: str, name: str, data_dir: str | None, as_json: bool) -> None:
    """Give an organization another name."""
    renamed = run(
        data_dir,
        lambda opened: organizations.rename_organization(
            opened.actor, opened.database, opened.clock, slug=slug, name=name
        ),
    )
    print_record(_shown(renamed), as_json=as_json)


@command.command("close")
@click.argument("slug")
@data_dir_option
@json_option
def close(slug: str, data_dir: str | None, as_json: bool) -> None:
    """Close an organization for good.

    Requests for it are refused from then on. Its records stay, and its slug stays taken.
    """
    closed = run(
        data_dir,
        lambda opened: organizations.close_organization(opened.actor, opened.database, opened.clock, slug=slug),
    )
    print_record(_shown(closed), as_json=as_json)


@command.command("set-default-group")
@click.argument("slug")
@click.argument("group_id")
@data_dir_option
@json_option
def set_default_group(slug: str, group_id: str, data_dir: str | None, as_json: bool) -> None:
    """Choose the group that takes the opt-outs which name none."""
    group = run(
        data_dir,
        lambda opened: groups.set_default_group(
            opened.actor, opened.database, opened.clock, org_slug=slug, group_id=group_id
        ),
    )
    print_record({"slug": slug, "default_group_id": group.group_id}, as_json=as_json)


def _shown(organization: Organization) -> dict[str, Any]:
    return {
        "slug": organization.slug,
        "name": organization.name,
        "default_group_id": organization.default_group_id,
        "created_at": rfc3339(organization.created_ms),
        "closed_at": rfc3339(organization.closed_ms),
    }
