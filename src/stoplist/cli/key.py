"""`stoplist key`: the API keys (client credentials) of partners."""

from collections.abc import Awaitable, Callable

import click

from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import Command, data_dir_option, run
from stoplist.cli.key_records import DAYS_SHOWN, read_details, to_record
from stoplist.cli.parameters import CEILING, NAME
from stoplist.cli.printing import json_option, print_line, print_record, print_records, require_open_stdout
from stoplist.oauth import ceilings, credentials
from stoplist.oauth.model import NEW_KEY_PERMISSIONS, PERMISSIONS, Credential

_STORE_SECRET = "Store the client_secret now: it is not shown again."
_UNCHANGED = "default: unchanged"


def _permission_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        "--permission",
        "permissions",
        multiple=True,
        type=click.Choice(PERMISSIONS),
        help=f"What the key may do. Repeat for several permissions ({default}).",
    )


def _refresh_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        "--refresh-needs-secret/--no-refresh-needs-secret",
        "refresh_needs_secret",
        default=None,
        help=f"Whether a refresh token of the key works only together with its secret ({default}).",
    )


def _default_org_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        "--default-org",
        metavar="SLUG",
        help=f"The organization of requests that name none. Required with several --org ({default}).",
    )


@click.group("key", cls=CommandGroup)
def command() -> None:
    """Manage API keys: a client_id and a client_secret with which a partner's program gets tokens.

    A change takes effect with the next request, on running servers too.
    """


@command.command("create")
@click.option("--label", required=True, type=NAME, help="A label that tells people what the key is for.")
@click.option(
    "--org",
    "organizations",
    required=True,
    multiple=True,
    metavar="SLUG",
    help="An organization that the key covers. Repeat for several.",
)
@_default_org_option("default: the only --org")
@_permission_option(f"default: {' and '.join(word for word in PERMISSIONS if word in NEW_KEY_PERMISSIONS)}")
@_refresh_option("default: no")
@data_dir_option
@json_option
def create(
    label: str,
    organizations: tuple[str, ...],
    default_org: str | None,
    permissions: tuple[str, ...],
    refresh_needs_secret: bool | None,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Create a key. Its secret is shown only once.

    Example: stoplist key create --label "Nightly import" --org acme-shoes
    """
    _check_default(organizations, default_org)
    require_open_stdout()
    created = run(
        data_dir,
        lambda context: credentials.create_credential(
            context.actor,
            context.database,
            context.clock,
            label=label,
            organizations=organizations,
            default_organization=default_org,
            permissions=frozenset(permissions) or NEW_KEY_PERMISSIONS,
            refresh_needs_secret=bool(refresh_needs_secret),
        ),
    )
    record = to_record(created.credential)
    print_record(
        {"client_id": record.pop("client_id"), "client_secret": created.client_secret, **record},
        as_json=as_json,
    )
    click.echo(_STORE_SECRET, err=True)


@command.command("list")
@data_dir_option
@json_option
def list_(data_dir: str | None, as_json: bool) -> None:
    """List all keys, oldest first."""
    found = run(data_dir, lambda context: credentials.list_credentials(context.actor, context.database))
    print_records(
        [to_record(credential) for credential in found],
        columns=("label", "client_id", "secret_prefix", "active", "last_used_at", "created_at"),
        as_json=as_json,
        if_empty="There is no key yet. `stoplist key create` creates one.",
    )


@command.command("show")
@click.argument("client_id")
@data_dir_option
@json_option
def show(client_id: str, data_dir: str | None, as_json: bool) -> None:
    """Show a key, its use and its refusals.

    The use covers the last 30 days, the refusals are the last 50 refused requests.
    """
    record = run(data_dir, lambda context: read_details(context, client_id))
    if as_json:
        print_record(record, as_json=True)
        return
    days, refusals = record.pop("days"), record.pop("refusals")
    print_record(record, as_json=False)
    print_line()
    print_records(
        days,
        columns=("day", "requests", "limit_refusals", "failed_authentications"),
        as_json=False,
        if_empty=f"Not used in the last {DAYS_SHOWN} days.",
    )
    print_line()
    print_records(refusals, columns=("at", "request_id", "error"), as_json=False, if_empty="No refused request.")


@command.command("deactivate")
@click.argument("client_id")
@data_dir_option
@json_option
def deactivate(client_id: str, data_dir: str | None, as_json: bool) -> None:
    """Deactivate a key. It gets no more tokens, and all its tokens are revoked at once."""
    _change(data_dir, as_json, credentials.deactivate_credential, client_id)


@command.command("activate")
@click.argument("client_id")
@data_dir_option
@json_option
def activate(client_id: str, data_dir: str | None, as_json: bool) -> None:
    """Activate a key again. Its former tokens stay revoked."""
    _change(data_dir, as_json, credentials.activate_credential, client_id)


@command.command("revoke-tokens")
@click.argument("client_id")
@data_dir_option
@json_option
def revoke_tokens(client_id: str, data_dir: str | None, as_json: bool) -> None:
    """Revoke all tokens of a key at once. The secret stays valid, so the partner's program gets new tokens."""
    _change(data_dir, as_json, credentials.revoke_tokens, client_id)


@command.command("rotate-secret")
@click.argument("client_id")
@data_dir_option
@json_option
def rotate_secret(client_id: str, data_dir: str | None, as_json: bool) -> None:
    """Give a key a new secret. The old secret and all tokens stop working at once.

    The new secret is shown only once. To avoid an interruption, create a second key instead, let the partner switch,
    and deactivate the old key.
    """
    require_open_stdout()
    rotated = run(
        data_dir,
        lambda context: credentials.rotate_secret(context.actor, context.database, context.clock, client_id=client_id),
    )
    print_record({"client_id": client_id, "client_secret": rotated.client_secret}, as_json=as_json)
    click.echo(_STORE_SECRET, err=True)


@command.command("limits")
@click.argument("client_id")
@click.option("--token-per-minute", type=CEILING, help="Requests to the token endpoint per 60 s (default 10).")
@click.option("--api-per-minute", type=CEILING, help="Requests to the API per 60 s (default 60).")
@data_dir_option
@json_option
def limits(
    client_id: str,
    token_per_minute: int | str | None,
    api_per_minute: int | str | None,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Set the rate ceilings of a key. Without an option, show them."""
    changed = run(
        data_dir,
        lambda context: ceilings.set_ceilings(
            context.actor,
            context.database,
            context.clock,
            client_id=client_id,
            token_per_minute=token_per_minute,
            api_per_minute=api_per_minute,
        ),
    )
    print_record(
        {
            "client_id": client_id,
            "token_per_minute": changed.token_per_minute,
            "api_per_minute": changed.api_per_minute,
        },
        as_json=as_json,
    )


@command.command("update")
@click.argument("client_id")
@click.option("--label", type=NAME, help=f"A label that tells people what the key is for ({_UNCHANGED}).")
@click.option(
    "--org",
    "organizations",
    multiple=True,
    metavar="SLUG",
    help=f"An organization that the key covers. Repeat for several ({_UNCHANGED}).",
)
@_default_org_option(f"{_UNCHANGED}, or the only --org")
@_permission_option(_UNCHANGED)
@_refresh_option(_UNCHANGED)
@data_dir_option
@json_option
def update(
    client_id: str,
    label: str | None,
    organizations: tuple[str, ...],
    default_org: str | None,
    permissions: tuple[str, ...],
    refresh_needs_secret: bool | None,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Change a key. Each option that you give replaces the former value. Tokens stay valid, with the new rights."""
    if not (label or organizations or default_org or permissions) and refresh_needs_secret is None:
        raise click.UsageError("Give at least one option to say what should change.")
    if organizations:
        _check_default(organizations, default_org)
    changes = credentials.Changes(
        label=label,
        organizations=organizations or None,
        default_organization=default_org,
        permissions=frozenset(permissions) or None,
        refresh_needs_secret=refresh_needs_secret,
    )
    updated = run(
        data_dir,
        lambda context: credentials.update_credential(
            context.actor, context.database, context.clock, client_id=client_id, changes=changes
        ),
    )
    print_record(to_record(updated), as_json=as_json)


def _change(
    data_dir: str | None, as_json: bool, operation: Callable[..., Awaitable[Credential]], client_id: str
) -> None:
    changed = run(
        data_dir, lambda context: operation(context.actor, context.database, context.clock, client_id=client_id)
    )
    print_record(to_record(changed), as_json=as_json)


def _check_default(organizations: tuple[str, ...], default_org: str | None) -> None:
    if default_org is None and len(set(organizations)) > 1:
        raise click.UsageError("With several --org, give --default-org, which names one of them.")
    if default_org is not None and default_org not in organizations:
        raise click.UsageError("--default-org must be one of the organizations given with --org.")
