"""`stoplist person`: what is stored about a person, and their erasure. Source: docs/interface.md section D13."""

import os
import sys
from pathlib import Path

import click
import msgspec

from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import CommandContext, data_dir_option, run
from stoplist.cli.parameters import SINCE
from stoplist.cli.printing import (
    counted,
    is_terminal,
    json_option,
    print_error,
    print_json,
    print_line,
    print_record,
)
from stoplist.errors import Refused
from stoplist.rights.access import PersonFile, file_content, show_person
from stoplist.rights.erasure import ErasedFeed, canonical_address, erase_person, find_known_feeds
from stoplist.rights.erasure_list import Applied, apply_erasures, list_erasures, read_erasures
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import OptOutStores
from stoplist.whole_file import whole_file

_WORD = "erase"
_STDIN = "-"
_MAX_LISTED = 100_000


@click.group("person", cls=CommandGroup)
def command() -> None:
    """Answer people's requests about their own data: show it, or erase a person, who stays barred.

    The people who use the admin pages are under `stoplist user`.
    """


@command.command("show")
@click.argument("address")
@click.option("--channel", required=True, type=click.Choice(list(CHANNELS)), help="The channel of the address.")
@click.option("--org", "org_slug", metavar="SLUG", help="Only what this organization stores.")
@click.option("--at", "at_ms", type=SINCE, help="What was known at this time, or at the beginning of this day (UTC).")
@data_dir_option
@json_option
def show(
    address: str, channel: str, org_slug: str | None, at_ms: int | None, data_dir: str | None, as_json: bool
) -> None:
    """Show everything that is stored about a person, as JSON.

    Every record with all its versions: who sent each, when, from which source address, in which submission or import.
    `-` reads ADDRESS from the standard input, so that no shell history holds it. Reading leaves an entry in the audit,
    without the address.
    """
    canonical = canonical_address(CHANNELS[channel], _read_address(address))

    async def work(context: CommandContext) -> PersonFile:
        return await show_person(
            context.actor, _stores(context), CHANNELS[channel], canonical, org_slug=org_slug, at_ms=at_ms
        )

    print_line(file_content(run(data_dir, work)).decode().rstrip("\n"))


@command.command("erase")
@click.argument("address", required=False)
@click.option("--channel", type=click.Choice(list(CHANNELS)), help="The channel of the address.")
@click.option("--org", "org_slug", metavar="SLUG", help="Erase in this organization.")
@click.option("--everywhere", is_flag=True, help="Erase in all organizations.")
@click.option("--list", "list_file", metavar="FILE", help="Erase every address of this file, one per line.")
@click.option("--from", "from_file", metavar="FILE", help="Repeat, after a restore, what `person erasures` wrote.")
@click.option("--all-upgraded", "is_all_upgraded", is_flag=True, help="For the first erasure: no older process serves.")
@click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask. Required without a terminal.")
@data_dir_option
@json_option
def erase(
    address: str | None,
    channel: str | None,
    org_slug: str | None,
    everywhere: bool,
    list_file: str | None,
    from_file: str | None,
    is_all_upgraded: bool,
    is_confirmed: bool,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Erase a person, who stays barred.

    ADDRESS gives way to a digest in every record and version, in the named organization or everywhere. `-` reads it
    from the standard input, so that no shell history holds it. What the records bar stays barred, and
    partners learn of it. It cannot be taken back. Backups hold the address until they expire: keep the list that
    `stoplist person erasures` writes beside them.
    """
    if sum(each is not None for each in (address, list_file, from_file)) != 1:
        raise click.UsageError("Give an ADDRESS, or --list FILE, or --from FILE.")
    if from_file is not None:
        if channel or org_slug or everywhere:
            raise click.UsageError(
                "--from FILE says itself where to erase: leave out --channel, --org and --everywhere."
            )
        _erase_from(Path(from_file), data_dir, is_all_upgraded=is_all_upgraded, as_json=as_json)
        return
    if channel is None:
        raise click.UsageError("Give --channel.")
    if (org_slug is not None) == everywhere:
        raise click.UsageError("Give --org SLUG or --everywhere.")
    typed = [_read_address(address)] if address is not None else _read_list(Path(list_file or ""))
    addresses = _canonical(typed, channel)
    if not is_confirmed:
        _confirm(addresses, channel, org_slug, data_dir)

    async def work(context: CommandContext) -> list[list[ErasedFeed]]:
        stores = _stores(context)
        return [
            await erase_person(
                context.actor, stores, CHANNELS[channel], one, org_slug=org_slug, is_all_upgraded=is_all_upgraded
            )
            for one in addresses
        ]

    done = run(data_dir, work)
    _report(done, channel, as_json=as_json)


@command.command("erasures")
@click.option("--to", "target", required=True, metavar="FILE", help="The new file.")
@data_dir_option
@json_option
def erasures(target: str, data_dir: str | None, as_json: bool) -> None:
    """Write all erasures to a file, to be kept beside the backups.

    The file holds no address: organization, channel, digest and time of each, and a fingerprint of the digest key.
    FILE appears when it is complete, and is never overwritten.
    """

    async def work(context: CommandContext) -> int:
        count = 0
        with whole_file(Path(target), "list") as (_, file), os.fdopen(os.dup(file), "wb") as stream:
            async for erasure in list_erasures(context.actor, context.database):
                stream.write(msgspec.json.encode(erasure) + b"\n")
                count += 1
        return count

    count = run(data_dir, work)
    if as_json:
        print_json({"path": str(Path(target).absolute()), "erasures": count})
    else:
        print_line(f"Wrote {counted(count, 'erasure')} to {target}.")


def _erase_from(path: Path, data_dir: str | None, *, is_all_upgraded: bool, as_json: bool) -> None:
    wanted = read_erasures(_lines(path))

    async def work(context: CommandContext) -> Applied:
        return await apply_erasures(context.actor, _stores(context), wanted, is_all_upgraded=is_all_upgraded)

    applied = run(data_dir, work)
    if as_json:
        print_json(msgspec.to_builtins(applied))
    else:
        print_line(
            f"Erased: {applied.erased:,}. Erased before: {applied.already:,}. "
            f"Resubscribed since: {applied.returned:,}. Not known to this database: {applied.unknown:,}."
        )
        for one in applied.unapplied:
            print_error(f"Not applied: {one.org_slug} {one.channel} {one.address_digest}: {one.why}.")
    if applied.unapplied:
        raise Refused(f"{len(applied.unapplied):,} of {len(wanted):,} erasures could not be applied.")


def _read_address(address: str) -> str:
    if address != _STDIN:
        return address
    if sys.stdin is None:
        raise Refused("The standard input is closed. Open it, or name the address.")
    return sys.stdin.readline()


def _read_list(path: Path) -> list[str]:
    lines = [line.decode("utf-8", "replace") for line in _lines(path) if line.strip()]
    if len(lines) > _MAX_LISTED:
        raise Refused(f"The list has more than {_MAX_LISTED:,} addresses: cut it into several.")
    return lines


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}.") from None


def _canonical(typed: list[str], channel: str) -> list[str]:
    """Return each address once; Refused, before anything is erased, with the lines that are invalid."""
    found: dict[str, None] = {}
    bad: list[int] = []
    for number, address in enumerate(typed, start=1):
        try:
            found[canonical_address(CHANNELS[channel], address)] = None
        except Refused:
            if len(typed) == 1:
                raise
            bad.append(number)
    if bad:
        lines = ", ".join(map(str, bad[:10])) + (" …" if len(bad) > 10 else "")
        raise Refused(f"Nothing was erased: {len(bad):,} of {len(typed):,} are no addresses of this channel ({lines}).")
    return list(found)


def _confirm(addresses: list[str], channel: str, org_slug: str | None, data_dir: str | None) -> None:
    async def work(context: CommandContext) -> tuple[int, int]:
        stores, records, organizations = _stores(context), 0, set[str]()
        for one in addresses:
            known = await find_known_feeds(context.actor, stores, CHANNELS[channel], one, org_slug=org_slug)
            records += sum(feed.records for feed in known)
            organizations |= {feed.org_slug for feed in known}
        return records, len(organizations)

    records, organizations = run(data_dir, work)
    if not records:
        return
    counts = f"{counted(records, 'record')} in {counted(organizations, 'organization')}"
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise Refused(f"This would erase {counts}. Nothing was changed: without a terminal, confirm with --yes.")
    click.echo(f"{counts} would be erased, for ever. Type {_WORD} to confirm: ", nl=False, err=True)
    if sys.stdin.readline().strip() != _WORD:
        raise Refused("Nothing was changed.")


def _report(done: list[list[ErasedFeed]], channel: str, *, as_json: bool) -> None:
    feeds = [feed for one in done for feed in one]
    unknown = sum(not one for one in done)
    if as_json:
        print_record(
            {
                "channel": channel,
                "addresses": len(done),
                "unknown": unknown,
                "erased": [msgspec.to_builtins(feed) for feed in feeds],
            },
            as_json=True,
        )
        return
    for feed in feeds:
        rows = f", and {counted(feed.rejected_rows, 'rejected row')} of imports" if feed.rejected_rows else ""
        rows += f", and {counted(feed.file_names, 'file name')} of imports" if feed.file_names else ""
        by = f" ({feed.submission_id})" if feed.submission_id else ""
        print_line(f"{feed.org_slug}: {counted(feed.records, 'record')} erased{rows}{by}.")
    if unknown:
        whom = "The address is not known" if len(done) == 1 else f"{unknown:,} of {len(done):,} addresses are not known"
        print_line(f"{whom} here, or erased already: nothing to do.")
    if feeds:
        print_line("Backups hold the address until they expire. `stoplist person erasures` lists what to repeat then.")


def _stores(context: CommandContext) -> OptOutStores:
    return OptOutStores(database=context.database, clock=context.clock, secret_keys=())
