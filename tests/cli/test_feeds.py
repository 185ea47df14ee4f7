"""`stoplist feeds` (docs/interface.md section D9)."""

from collections.abc import Iterator

import pytest

from tests.cli.command_line import Prompt
from tests.maintenance.split.test_split import Two, restore_feeds
from tests.services.postgresql import PostgresqlServer


@pytest.fixture
def two(empty: Prompt, postgresql: PostgresqlServer) -> Iterator[Two]:
    """Yield the URLs of a deployment with one record and of a copy of it; the prompt knows both."""
    accounts = postgresql.fresh_database("accounts")
    empty.set(DATABASE_URL=accounts, SECRET_KEY="k" * 32)
    empty.ok("migrate")
    empty.ok("org", "create", "acme", "--name", "Acme Shoes", "--default-group", "News")
    (empty.folder / "list.csv").write_text("address\nann@example.org\n")
    empty.ok(
        "import", "run", "list.csv", "--org", "acme", "--channel", "email", "--all-groups", "--as-of", "now", "--yes"
    )
    feeds = postgresql.fresh_database("feeds", template=accounts.rsplit("/", 1)[1])
    empty.set(FEEDS_URL=feeds)
    yield Two(accounts, feeds)
    for url in (accounts, feeds):
        postgresql.drop_database(url)


def records(prompt: Prompt) -> int:
    """Return how many opt-outs an export finds."""
    (prompt.folder / "out.csv").unlink(missing_ok=True)
    found: int = prompt.json("export", "--org", "acme", "--channel", "email", "--to", "out.csv")["records"]
    return found


def test_the_feeds_get_a_database_of_their_own_and_come_back(
    empty: Prompt, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each output says what to do next, and commands work on what there is then."""
    result = empty.run("feeds", "split")
    assert result.status == 0
    assert "are now in the database of STOPLIST_FEEDS_URL alone" in result.out
    assert "Comparing 100% [##########]" in result.err
    assert records(empty) == 1
    assert "already" in empty.ok("feeds", "split")
    assert empty.json("feeds", "split") == {"rows": None}
    restore_feeds(two)
    out = empty.ok("feeds", "join")
    assert "Unset STOPLIST_FEEDS_URL" in out
    monkeypatch.delenv("STOPLIST_FEEDS_URL")
    assert records(empty) == 1
    assert "Set STOPLIST_FEEDS_URL" in empty.refused("feeds", "split")


def test_what_keeps_it_is_said_in_one_line(empty: Prompt, two: Two) -> None:
    """Without the password of an address."""
    empty.set(FEEDS_URL="postgresql://stoplist:hush@127.0.0.1:1/none")
    for verb in ("split", "join"):
        text = empty.refused("feeds", verb)
        assert "PostgreSQL cannot be reached with STOPLIST_FEEDS_URL" in text
        assert "hush" not in text
