"""Recomputes the figures of all copies from their rows. Source: docs/interface.md section D14, State of a feed."""

import sqlite3

from stoplist_client.errors import MirrorDiverged
from stoplist_client.mirror.divergence import Divergence, mark_diverged
from stoplist_client.mirror.feeds import Feed, all_feeds
from stoplist_client.mirror.figures import Figures, figures_of_copy, kept_figures, tables_agree
from stoplist_client.mirror.file import transaction
from stoplist_client.mirror.model import Verified

_FEED = "SELECT copy_no, diverged FROM feeds WHERE feed_no = ?"


def verify(connection: sqlite3.Connection) -> tuple[Verified, ...]:
    """Return the figures of all complete copies; raise MirrorDiverged if the rows of any are not what was stored."""
    verified, differing = [], []
    for feed in all_feeds(connection):
        figures = _verified_figures(connection, feed)
        if isinstance(figures, Figures):
            verified.append(
                Verified(
                    org_slug=feed.org_slug,
                    channel=feed.channel,  # type: ignore[arg-type]
                    records=figures.records,
                    digest=figures.text,
                )
            )
        elif figures is Divergence.REREADING:
            differing.append(f"{feed.channel} of {feed.org_slug}")
    if differing:
        raise MirrorDiverged(
            f"The rows of the mirror's copy of {', '.join(differing)} are not those that were stored: synchronise it, "
            "which reads it anew. Until that is done, it only bars and allows nobody."
        )
    return tuple(verified)


def _verified_figures(connection: sqlite3.Connection, feed: Feed) -> Figures | Divergence | None:
    """Return the figures of the feed's rows; REREADING if they are wrong; None if there is no complete copy."""
    connection.execute("BEGIN")  # one snapshot
    try:
        copy_no, diverged = connection.execute(_FEED, (feed.feed_no,)).fetchone() or (None, None)
        if copy_no is None:
            return None
        figures, kept = figures_of_copy(connection, copy_no), kept_figures(connection, copy_no)
        agree = kept in (None, figures) and tables_agree(connection, feed.feed_no, copy_no)
    finally:
        connection.execute("ROLLBACK")
    if agree and diverged != Divergence.REREADING:
        return figures
    with transaction(connection):
        mark_diverged(connection, feed.feed_no, copy_no)
    return Divergence.REREADING
