"""`stoplist link-key` (docs/interface.md section D15)."""

from collections.abc import Iterable

import pytest
from stoplist_addresses.link_tokens import LinkContent, LinkKey

from stoplist import rfc3339
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.links.clicked_link import ClickedLink, find_link
from stoplist.links.opt_out import opt_out
from stoplist.unsubscribes.act_groups import ActGroups
from stoplist.unsubscribes.model import OptOutStores
from tests.builders import on_database, sql
from tests.cli.command_line import Prompt, at_a_terminal
from tests.links.link_sender import SOMEBODY

OTHER_KEY = "another key of at least 32 characters"


def create_link_key(prompt: Prompt) -> str:
    link_key_id: str = prompt.json("link-key", "create", "--org", "acme")["link_key_id"]
    return link_key_id


def new_link_key(prompt: Prompt) -> LinkKey:
    return LinkKey(prompt.json("link-key", "create", "--org", "acme")["link_key"])


def click(prompt: Prompt, link_key: LinkKey, addresses: Iterable[str]) -> None:
    """Opt these people out by links of the key, at the present time."""
    secret_key = (prompt.data_dir / "secret.key").read_text().strip()

    async def opt_out_all(database: Database) -> None:
        stores = OptOutStores(database=database, clock=Clock(), secret_keys=(secret_key,))
        for address in addresses:
            link = await find_link(stores, link_key.token(LinkContent("email", None, address)))
            assert isinstance(link, ClickedLink)
            acts = ActGroups(database, stores.clock)
            await opt_out(acts, link, everything=True, default_source="one_click", request=SOMEBODY)

    on_database(prompt.database_url, opt_out_all)


def opted_out(prompt: Prompt) -> list[str]:
    async def read(database: Database) -> list[str]:
        rows = await database.all(sql("SELECT address FROM unsubscribes WHERE status = 'unsubscribed'"))
        return sorted(row["address"] for row in rows)

    return on_database(prompt.database_url, read)


def test_a_link_key_is_printed_once(prompt: Prompt) -> None:
    result = prompt.run("link-key", "create", "--org", "acme", "--json")
    assert "not shown again" in result.err
    made = prompt.json("link-key", "create", "--org", "acme")
    assert made.keys() == {"link_key_id", "link_key", "org_slug", "created_at"}
    assert LinkKey(made["link_key"]).key_id == made["link_key_id"]
    listed = prompt.json("link-key", "list", "--org", "acme")
    assert [one["state"] for one in listed] == ["active", "active"]
    assert made["link_key"] not in prompt.ok("link-key", "list", "--json")
    assert "no organization" in prompt.refused("link-key", "create", "--org", "beta")


def test_retiring_asks_nothing_and_revoking_does(prompt: Prompt) -> None:
    link_key_id = create_link_key(prompt)
    assert prompt.json("link-key", "retire", link_key_id)["state"] == "retired"
    assert "--yes" in prompt.refused("link-key", "revoke", link_key_id)
    assert prompt.json("link-key", "revoke", link_key_id, "--yes")["state"] == "revoked"
    assert "no link key" in prompt.refused("link-key", "retire", "lnk_0")


def test_taking_acts_back_needs_a_time_and_a_yes(prompt: Prompt) -> None:
    link_key_id = create_link_key(prompt)
    assert "--since" in prompt.wrong_usage("link-key", "reverse", link_key_id)
    assert prompt.json("link-key", "reverse", link_key_id, "--since", "2026-03-01", "--yes") == {
        "link_key_id": link_key_id,
        "restored": 0,
        "corrected": 0,
        "superseded": 0,
        "confirmed": 0,
        "taken_back": 0,
    }


@pytest.mark.parametrize(("word", "state"), [("revoke", "revoked"), ("yes", "active")])
def test_at_a_terminal_revoking_needs_the_word(prompt: Prompt, word: str, state: str) -> None:
    """The question shows the number of acts; any other answer changes nothing."""
    link_key = new_link_key(prompt)
    click(prompt, link_key, ("ann@example.org", "bob@example.org"))
    result = at_a_terminal(prompt, f"{word}\n", "link-key", "revoke", link_key.key_id, question="to revoke it")
    assert "2 acts by links of this key were stored in the last 60 days" in result.err
    assert (result.status, "Nothing was revoked" in result.err) == ((0, False) if state == "revoked" else (1, True))
    assert [one["state"] for one in prompt.json("link-key", "list")] == [state]


def test_acts_of_a_time_are_taken_back_after_the_question(prompt: Prompt) -> None:
    """Those before --until, which are counted first; without a terminal only with --yes, then the others, too."""
    link_key = new_link_key(prompt)
    click(prompt, link_key, ("ann@example.org", "bob@example.org"))
    between = rfc3339.format_ms(Clock().now_ms())
    click(prompt, link_key, ("eve@example.org",))
    reverse = ("link-key", "reverse", link_key.key_id, "--since", "2020-01-01")
    assert "take back 3 records" in prompt.refused(*reverse)
    refused = at_a_terminal(prompt, "n\n", *reverse, "--until", between)
    assert (refused.status, "2  did not exist before" in refused.err) == (1, True)
    assert opted_out(prompt) == ["ann@example.org", "bob@example.org", "eve@example.org"]
    done = at_a_terminal(prompt, "y\n", *reverse, "--until", between)
    assert (done.status, "Taken back: 2 records" in done.out) == (0, True)
    assert opted_out(prompt) == ["eve@example.org"]
    assert prompt.json(*reverse, "--yes") == {
        "link_key_id": link_key.key_id,
        "restored": 0,
        "corrected": 1,
        "superseded": 0,
        "confirmed": 0,
        "taken_back": 2,
    }


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_start_with_a_lost_key_names_the_way_on(prompt: Prompt, is_replaced: bool) -> None:
    """The start and the doctor refuse, with another key or with none; after `link-key forget` neither does."""
    link_key_id = create_link_key(prompt)
    if is_replaced:
        prompt.set(SECRET_KEY=OTHER_KEY)
    else:
        (prompt.data_dir / "secret.key").unlink()
    doctor = prompt.run("doctor")
    assert doctor.status == 1
    assert link_key_id in doctor.out
    assert "link-key forget ID" in doctor.out
    assert prompt.json("link-key", "forget", link_key_id)["state"] == "forgotten"
    assert "link-key forget" not in prompt.run("doctor").out


@pytest.mark.slow
def test_link_keys_on_postgresql_need_the_servers_secret_key(on_postgresql: Prompt) -> None:
    """A made-up one would encrypt what no server can read."""
    on_postgresql.ok("migrate")
    on_postgresql.ok("org", "create", "acme", "--name", "Acme Shoes")
    assert "STOPLIST_SECRET_KEY" in on_postgresql.refused("link-key", "create", "--org", "acme")
    on_postgresql.set(SECRET_KEY=OTHER_KEY)
    assert create_link_key(on_postgresql)
