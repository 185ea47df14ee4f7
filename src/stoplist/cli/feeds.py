"""`stoplist feeds`: the feeds of a deployment on PostgreSQL get a database of their own, or come back."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click

from stoplist.actor import Actor
from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import command_actor, data_dir_option, settings_of
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.cli.progress import ProgressDisplay, WorkProgress
from stoplist.clock import Clock
from stoplist.errors import Refused
from stoplist.maintenance.split.exclusive import ComparedTables, Report
from stoplist.maintenance.split.split import SplitResult, join_feeds, split_feeds
from stoplist.settings import Settings

_Work = Callable[[Actor, Clock, Settings, Report], Coroutine[Any, Any, SplitResult]]


@click.group("feeds", cls=CommandGroup)
def command() -> None:
    """Give the feeds a database of their own, or take them back.

    Both databases are PostgreSQL: STOPLIST_DATABASE_URL names that of the accounts, STOPLIST_FEEDS_URL that of the
    feeds.
    """


@command.command("split")
@data_dir_option
@json_option
def split(data_dir: str | None, as_json: bool) -> None:
    """Make a deployment and a copy of its database two: the accounts, and the feeds.

    Stop all servers and whatever else is connected, then copy the whole database (pg_dump and pg_restore, or promote a
    standby), and let STOPLIST_FEEDS_URL name the copy. This compares every row of the two, deletes the feeds from the
    one and the accounts from the other, and changes nothing if they differ. It may be repeated if it was interrupted:
    until it has finished, no server starts on the two.
    """
    result = _run(data_dir, split_feeds)
    if as_json:
        print_json(result._asdict())
    elif result.rows is None:
        print_line(
            "The feeds are in a database of their own already. What lay in the wrong one of the two was deleted."
        )
    else:
        print_line(
            f"The feeds ({result.rows:,} rows, all compared) are now in the database of STOPLIST_FEEDS_URL alone, and "
            "the accounts in that of STOPLIST_DATABASE_URL. Set both for every server, then start them. Delete the "
            "dump that the copy was made with."
        )


@command.command("join")
@data_dir_option
@json_option
def join(data_dir: str | None, as_json: bool) -> None:
    """Make one database of the two again: that of the accounts, with the feeds.

    Stop all servers and whatever else is connected, then copy the rows of the feeds into the database of the accounts
    (docs/operate.md, Move an existing deployment, has the commands). This compares every row of the feeds, and
    changes nothing if one differs. Then unset STOPLIST_FEEDS_URL, and drop the database of the feeds.
    """
    result = _run(data_dir, join_feeds)
    if as_json:
        print_json(result._asdict())
    else:
        print_line(
            f"The database of STOPLIST_DATABASE_URL holds accounts and feeds ({result.rows:,} rows, all compared). "
            "Unset STOPLIST_FEEDS_URL for every server, then start them. Drop the database that it named, and delete "
            "the dump."
        )


def _run(data_dir: str | None, work: _Work) -> SplitResult:
    clock = Clock()
    display = ProgressDisplay(clock, sys.stderr)
    try:
        return asyncio.run(
            work(
                command_actor(),
                clock,
                settings_of(data_dir),
                lambda comparison: display.report(_progress(comparison)),
            )
        )
    except KeyboardInterrupt:
        raise Refused("Interrupted. Run the same command again.") from None
    finally:
        display.close()


def _progress(comparison: ComparedTables) -> WorkProgress:
    return WorkProgress("Comparing", comparison.tables, comparison.all_tables, comparison.table, unit="tables")
