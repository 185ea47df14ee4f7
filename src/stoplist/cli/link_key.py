"""`stoplist link-key`: the keys that senders make opt-out links with."""

import sys
from typing import Any

import click

from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import CommandContext, data_dir_option, run, settings_of
from stoplist.cli.parameters import SINCE, UNTIL
from stoplist.cli.printing import (
    is_terminal,
    json_option,
    print_error,
    print_line,
    print_record,
    print_records,
    require_open_stdout,
    rfc3339,
)
from stoplist.cli.reversal_dialog import confirm_reversal, reversal_summary
from stoplist.clock import DAY_MS
from stoplist.errors import Refused, SettingsError
from stoplist.links import keys
from stoplist.links.keys import ACTS_DAYS
from stoplist.links.model import LinkKeyDetails
from stoplist.links.reversal import count_link_key_reversal, reverse_link_key
from stoplist.records.reversal_plan import Reversal
from stoplist.secret_key import existing_secret_keys, is_key_missing, secret_keys
from stoplist.setting_values import POSTGRESQL_SCHEME
from stoplist.unsubscribes.model import OptOutStores

_WORD = "revoke"


@click.group("link-key", cls=CommandGroup)
def command() -> None:
    """Manage link keys: an organization's senders make opt-out links with them, without asking the server."""


@command.command("create")
@click.option("--org", "org_slug", required=True, metavar="SLUG", help="The organization that the links are for.")
@data_dir_option
@json_option
def create(org_slug: str, data_dir: str | None, as_json: bool) -> None:
    """Create a link key, which is shown only once.

    Needs the secret key of the servers: STOPLIST_SECRET_KEY, or secret.key in the data folder.
    """
    require_open_stdout()
    created = run(
        data_dir,
        lambda context: keys.create_link_key(
            context.actor,
            context.database,
            context.clock,
            secret_keys=_secret_keys(context, data_dir),
            org_slug=org_slug,
        ),
    )
    print_record(
        {
            "link_key_id": created.details.link_key_id,
            "link_key": created.link_key,
            "org_slug": created.details.org_slug,
            "created_at": rfc3339(created.details.created_ms),
        },
        as_json=as_json,
    )
    click.echo("Store the link_key now: it is not shown again.", err=True)


@command.command("list")
@click.option("--org", "org_slug", metavar="SLUG", help="Only this organization's.")
@data_dir_option
@json_option
def list_(org_slug: str | None, data_dir: str | None, as_json: bool) -> None:
    """List all link keys."""
    found = run(data_dir, lambda context: keys.list_link_keys(context.actor, context.database, org_slug=org_slug))
    print_records(
        [_to_record(one) for one in found],
        columns=("link_key_id", "org_slug", "state", "created_at", "turned_away", "unusable"),
        as_json=as_json,
        if_empty="There is no link key yet. `stoplist link-key create` creates one.",
    )


@command.command("retire")
@click.argument("link_key_id", metavar="ID")
@data_dir_option
@json_option
def retire(link_key_id: str, data_dir: str | None, as_json: bool) -> None:
    """Retire a key, as after a rotation: no new links should be made with it; existing links keep working."""
    retired = run(
        data_dir,
        lambda context: keys.retire_link_key(context.actor, context.database, context.clock, link_key_id=link_key_id),
    )
    print_record(_to_record(retired), as_json=as_json)


@command.command("revoke")
@click.argument("link_key_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Revoke without asking.")
@data_dir_option
@json_option
def revoke(link_key_id: str, yes: bool, data_dir: str | None, as_json: bool) -> None:
    """Revoke a stolen link key: none of its links works any more.

    After a rotation, retire the key instead. The command first says how many acts by its links were stored in the last
    60 days, and asks for the word `revoke`; without a terminal it needs --yes.
    """

    async def work(context: CommandContext) -> LinkKeyDetails:
        since_ms = context.clock.now_ms() - ACTS_DAYS * DAY_MS
        acts = await keys.count_acts(context.actor, context.database, link_key_id, since_ms=since_ms)
        if not yes:
            _ask(acts)
        return await keys.revoke_link_key(context.actor, context.database, context.clock, link_key_id=link_key_id)

    print_record(_to_record(run(data_dir, work)), as_json=as_json)


@command.command("forget")
@click.argument("link_key_id", metavar="ID")
@data_dir_option
@json_option
def forget(link_key_id: str, data_dir: str | None, as_json: bool) -> None:
    """Give up a link key that no secret key can read, so that the server starts. Its links never work again."""
    forgotten = run(
        data_dir,
        lambda context: keys.forget_link_key(
            context.actor,
            context.database,
            context.clock,
            secret_keys=existing_secret_keys(settings_of(data_dir)),
            link_key_id=link_key_id,
            # Hosts that share a PostgreSQL must be given the key, so a key that this command lacks may be known there.
            is_key_lost=context.database.kind == "sqlite" and is_key_missing(settings_of(data_dir)),
        ),
    )
    print_record(_to_record(forgotten), as_json=as_json)


@command.command("reverse")
@click.argument("link_key_id", metavar="ID")
@click.option("--since", "since_ms", type=SINCE, required=True, help="Acts from this time or day (UTC) on.")
@click.option("--until", "until_ms", type=UNTIL, help="Acts before this time, or up to the end of this day.")
@click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask. Required without a terminal.")
@data_dir_option
@json_option
def reverse_(
    link_key_id: str, since_ms: int, until_ms: int | None, is_confirmed: bool, data_dir: str | None, as_json: bool
) -> None:
    """Reverse the opt-outs made with a stolen link key. Revoke the key first.

    Each record returns to its former state, as with `stoplist submission reverse`. Records that somebody else has sent
    again are left out; records that only the same key has sent again are not. May be repeated after an interruption.
    """

    async def count(context: CommandContext) -> Reversal:
        return await count_link_key_reversal(
            context.actor, _stores(context), link_key_id, since_ms=since_ms, until_ms=until_ms
        )

    async def work(context: CommandContext) -> Reversal:
        reversing = reverse_link_key(
            context.actor, _stores(context), link_key_id, since_ms=since_ms, until_ms=until_ms, expected=expected
        )
        return [counts async for counts in reversing][-1]

    expected = None if is_confirmed else confirm_reversal(run(data_dir, count))
    result = run(data_dir, work)
    if not as_json:
        print_line(reversal_summary(result, noun="link key"))
        return
    counts = ("restored", "corrected", "superseded", "confirmed", "taken_back")
    print_record({"link_key_id": link_key_id, **{name: getattr(result, name) for name in counts}}, as_json=True)


def _stores(context: CommandContext) -> OptOutStores:
    return OptOutStores(
        database=context.database, clock=context.clock, secret_keys=(), history_days=context.history_days
    )


def _ask(acts: int) -> None:
    """Say what revoking means, and raise Refused unless the person types the word."""
    if not is_terminal(sys.stdin):
        raise Refused("There is no terminal to ask at: add --yes.")
    print_error(
        f"{acts:,} acts by links of this key were stored in the last {ACTS_DAYS} days. After this, everybody who "
        "clicks one of its links is turned away."
    )
    if click.prompt(f"Type {_WORD} to revoke it", err=True, default="", show_default=False) != _WORD:
        raise Refused("Nothing was revoked.")


def _secret_keys(context: CommandContext, data_dir: str | None) -> tuple[str, ...]:
    """Return the secret keys of the servers. On SQLite a missing key is created, as a server would."""
    settings = settings_of(data_dir)
    found = existing_secret_keys(settings)
    if not found and context.database_url.startswith(POSTGRESQL_SCHEME):
        raise SettingsError(
            "STOPLIST_SECRET_KEY or STOPLIST_SECRET_KEY_FILE must be set as the servers have it: the link key is "
            "stored encrypted under it."
        )
    return found or secret_keys(settings)


def _to_record(key: LinkKeyDetails) -> dict[str, Any]:
    return {
        "link_key_id": key.link_key_id,
        "org_slug": key.org_slug,
        "state": key.state,
        "created_at": rfc3339(key.created_ms),
        "retired_at": rfc3339(key.retired_ms),
        "revoked_at": rfc3339(key.revoked_ms),
        "turned_away": key.turned_away,
        "unusable": key.unusable,
        "last_unusable_at": rfc3339(key.last_unusable_ms),
    }
