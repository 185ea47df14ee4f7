"""`stoplist-client links`: add opt-out links to a CSV file, or do with one what a mailbox provider does."""

from contextlib import ExitStack
from pathlib import Path

import click
from stoplist_addresses import AddressError

from stoplist_client.cli.atomic_file import AtomicFile, require_distinct
from stoplist_client.cli.csv_table import Row, Table, delimiter_option
from stoplist_client.cli.exit_status import Failed, WrongVariables, exit_not_all_accepted, print_notice
from stoplist_client.cli.options import FILE_PATH, Command, common_options, parse_group
from stoplist_client.cli.printing import print_line, quantity, standard_output
from stoplist_client.cli.profile_selection import load_profile_if_any, read_secret_file, variable
from stoplist_client.link_maker import LinkMaker
from stoplist_client.model import CHANNELS, Channel
from stoplist_client.secret import Secret
from stoplist_client.transport.one_click import one_click

_OK = 200


@click.command("links", cls=Command)
@click.argument("source", type=FILE_PATH, metavar="[IN.CSV]", required=False)
@click.option("--to", "target", type=FILE_PATH, metavar="OUT.CSV", help="Write to this file (default: stdout).")
@click.option("--force", is_flag=True, help="Replace an existing OUT.CSV.")
@click.option("--channel", type=click.Choice(CHANNELS), default="email", help="The channel (default: email).")
@click.option("--column", metavar="NAME", help="The address column: its name, or its number from 1.")
@click.option("--as", "name", default="unsubscribe_url", metavar="NAME", help="The new column's name.")
@click.option("--group", "group_id", callback=parse_group, metavar="ID", help="The group (default: all groups).")
@click.option("--source", "origin", metavar="TEXT", help="Where the links stand, in up to 64 bytes.")
@click.option(
    "--base-url", metavar="URL", help="Where the links lead (default: STOPLISTCLIENT_BASE_URL, or the profile's)."
)
@delimiter_option
@click.option("--try", "tried_url", metavar="URL", help="Opt the person of this link out, as a mailbox provider does.")
@common_options
def command(
    source: Path | None,
    target: Path | None,
    force: bool,
    channel: Channel,
    column: str | None,
    name: str,
    group_id: str | None,
    origin: str | None,
    base_url: str | None,
    delimiter: str | None,
    tried_url: str | None,
    profile_name: str | None,
) -> None:
    """Add a column of opt-out links to a CSV file.

    The link key comes from STOPLISTCLIENT_LINK_KEY, or from the file that STOPLISTCLIENT_LINK_KEY_FILE names. Rows are
    copied byte for byte, with the link at the end. A row without a valid address gets no link, and the exit status is
    then 3. Nothing is sent anywhere.

    With --try, the command posts what a mailbox provider posts when somebody clicks "unsubscribe", and prints the
    answer. The person of the link is then opted out: use a link of a development server.

    \b
    Examples:
      stoplist-client links list.csv --to with-links.csv --group grp_… --source "march newsletter"
      stoplist-client links --try https://localhost:8443/u/…
    """
    if (source is None) == (tried_url is None):
        raise click.UsageError("Give a CSV file, or --try with a link.")
    if tried_url is not None:
        _try(tried_url)
    elif source is not None:
        maker = LinkMaker(base_url or _base_url(profile_name), _link_key())
        writer = _LinkWriter(maker, channel, group_id, origin)
        _write(writer, source, target, force=force, column=column, name=name, delimiter=delimiter)
        print_notice(f"{quantity(writer.rows, 'row')}: {writer.invalid:,} without a valid address.")
        if writer.invalid:
            exit_not_all_accepted()


class _LinkWriter:
    """Adds links to rows, and counts those without a valid address."""

    def __init__(self, maker: LinkMaker, channel: Channel, group_id: str | None, source: str | None) -> None:
        self._maker, self.channel, self._group_id, self._source = maker, channel, group_id, source
        self.rows = self.invalid = 0

    def line(self, row: Row, table: Table, address_at: int) -> bytes:
        """Return the row with its link in the last column."""
        number, cells, raw = row
        missing = len(table.names) - len(cells)
        if missing < 0:
            raise Failed(f"The row on line {number} has more cells than the header: correct it.")
        self.rows += 1
        url = ""
        try:
            address = cells[address_at] if address_at < len(cells) else ""
            url = self._maker.url(self.channel, address, group_id=self._group_id, source=self._source)
        except AddressError:
            self.invalid += 1
        return _with_cell(raw, table.delimiter * (missing + 1) + url)


def _write(
    writer: _LinkWriter,
    source: Path,
    target: Path | None,
    *,
    force: bool,
    column: str | None,
    name: str,
    delimiter: str | None,
) -> None:
    if target is not None:
        require_distinct([source, target])
    with ExitStack() as stack:
        stream = stack.enter_context(open(source, "rb"))
        table = Table(stream, delimiter=delimiter)
        address_at = table.address_column(writer.channel, column)
        if table.delimiter in name or '"' in name or name in table.names:
            raise Failed("The new column needs a name of its own, without quotes and separators: see --as.")
        output = None if target is None else stack.enter_context(AtomicFile(target, like=stream, replaces=force))
        out = standard_output() if output is None else output.stream
        out.write(_with_cell(table.header, table.delimiter + name))
        for row in table:
            out.write(writer.line(row, table, address_at))
        if output is not None:
            output.finish()


def _with_cell(raw: bytes, text: str) -> bytes:
    """Return a row with more text before its line ending."""
    line = raw.rstrip(b"\r\n")
    return line + text.encode() + (raw[len(line) :] or b"\n")


def _try(url: str) -> None:
    status, text = one_click(url, ca_file=variable("CA_FILE"))
    if status != _OK:
        raise Failed(f"The answer is {status}, so nobody was opted out: a mailbox provider expects 200.")
    print_line(f"{status} {text.strip()}")


def _base_url(profile_name: str | None) -> str:
    url = None if profile_name else variable("BASE_URL")
    if url is None:
        profile = load_profile_if_any(profile_name)
        url = None if profile is None else profile.base_url
    if url is None:
        raise Failed("Where do the links lead? Set STOPLISTCLIENT_BASE_URL, or give --base-url.")
    return url


def _link_key() -> Secret:
    text, path = variable("LINK_KEY"), variable("LINK_KEY_FILE")
    if text and path:
        raise WrongVariables(
            "STOPLISTCLIENT_LINK_KEY and STOPLISTCLIENT_LINK_KEY_FILE are both set: unset one of them."
        )
    if path:
        return read_secret_file(path)
    if text is None:
        raise Failed("Set STOPLISTCLIENT_LINK_KEY, or STOPLISTCLIENT_LINK_KEY_FILE to a file with the link key.")
    return Secret(text)
