"""`stoplist user`: the people of the admin pages, at a prompt."""

import asyncio
import re
from typing import Any

import pytest

from stoplist import ids
from stoplist.clock import Clock
from stoplist.staff import links
from stoplist.web.request_context import SIGN_IN_LINK_PATH
from tests.builders import audit_rows, opened
from tests.cli.command_line import Prompt

ANN = "ann@example.org"
SHOWN = {"email", "administrator", "roles", "disabled", "has_password", "two_step", "created_at", "last_sign_in_at"}


def test_create_prints_a_link_that_works(prompt: Prompt) -> None:
    """Below the base address; by the canonical address; good for 24 hours."""
    made = prompt.json("user", "create", "Ann@Example.org", "--administrator")
    assert made.keys() == {"email", "sign_in_url", "expires_at"}
    assert made["email"] == ANN
    assert made["sign_in_url"].startswith(f"https://localhost:8443{SIGN_IN_LINK_PATH}?token={ids.SIGN_IN_LINK}")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", made["expires_at"])
    assert is_good(prompt, made["sign_in_url"])


def test_the_link_is_of_the_base_address_that_is_set(prompt: Prompt) -> None:
    """As partners and people reach the server."""
    prompt.set(BASE_URL="https://stop.example.org")
    text = prompt.run("user", "create", ANN, "--org", "acme", "--role", "viewer")
    assert f"https://stop.example.org{SIGN_IN_LINK_PATH}?token=" in text.out
    assert "good once" in text.err


def test_list_shows_everybody(prompt: Prompt) -> None:
    """With rights, as a table and as JSON."""
    assert prompt.json("user", "list") == []
    assert "`stoplist user create`" in prompt.ok("user", "list")
    prompt.ok("user", "create", "bob@example.org", "--administrator", "--org", "acme", "--role", "admin")
    prompt.ok("user", "create", ANN, "--org", "acme", "--role", "viewer")
    first, second = prompt.json("user", "list")
    assert first.keys() == SHOWN
    assert (first["email"], first["administrator"], first["roles"]) == (ANN, False, {"acme": "viewer"})
    assert (second["email"], second["administrator"], second["roles"]) == ("bob@example.org", True, {"acme": "admin"})
    assert (first["disabled"], first["has_password"], first["two_step"]) == (False, False, False)
    assert first["last_sign_in_at"] is None
    text = prompt.ok("user", "list")
    assert "acme:viewer" in text
    assert text.splitlines()[0].split()[:3] == ["email", "administrator", "roles"]


def test_link_replaces_the_earlier_one(prompt: Prompt) -> None:
    """Of a person who is there; the address as it is typed."""
    first = prompt.json("user", "create", ANN, "--administrator")
    second = prompt.json("user", "link", "ANN@example.org")
    assert second.keys() == first.keys()
    assert (is_good(prompt, first["sign_in_url"]), is_good(prompt, second["sign_in_url"])) == (False, True)
    third = prompt.json("user", "link", ANN, "--without-two-step")
    assert is_good(prompt, third["sign_in_url"])


def test_disable_and_enable(prompt: Prompt) -> None:
    """A disabled person gets no link; the earlier ones are dead, and stay so."""
    made = prompt.json("user", "create", ANN, "--administrator")
    assert prompt.json("user", "disable", ANN)["disabled"] is True
    assert not is_good(prompt, made["sign_in_url"])
    assert "Enable" in prompt.refused("user", "link", ANN)
    assert prompt.json("user", "enable", ANN)["disabled"] is False
    assert not is_good(prompt, made["sign_in_url"])


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((), "EMAIL"),
        (("no address", "--administrator"), "no @"),
        ((ANN,), "--administrator"),
        ((ANN, "--org", "acme"), "go together"),
        ((ANN, "--role", "viewer"), "go together"),
        ((ANN, "--administrator", "--role", "viewer"), "go together"),
        ((ANN, "--org", "acme", "--role", "owner"), "'admin'"),
    ],
)
def test_wrong_usage_of_create(prompt: Prompt, arguments: tuple[str, ...], what: str) -> None:
    """Exit status 2, and nobody is made."""
    assert what in prompt.wrong_usage("user", "create", *arguments)
    assert prompt.json("user", "list") == []


def test_what_cannot_be_done_is_refused(prompt: Prompt) -> None:
    """Exit status 1, with where to look."""
    prompt.ok("user", "create", ANN, "--administrator")
    assert "already" in prompt.refused("user", "create", "ANN@example.org", "--administrator")
    assert "no organization" in prompt.refused(
        "user", "create", "bob@example.org", "--org", "nowhere", "--role", "admin"
    )
    for verb in ("link", "disable", "enable"):
        assert "`stoplist user list`" in prompt.refused("user", verb, "nobody@example.org")
        assert "`stoplist user list`" in prompt.refused("user", verb, "no address")


def test_every_change_is_in_the_audit_without_the_link(prompt: Prompt) -> None:
    """With the account of the machine."""
    made = prompt.json("user", "create", ANN, "--administrator")
    prompt.ok("user", "link", ANN)
    prompt.ok("user", "disable", ANN)
    prompt.ok("user", "enable", ANN)
    rows = [row for row in audit(prompt) if row.target == ANN]
    assert [row.action for row in rows] == [
        "person.create",
        "person.link",
        "person.link",
        "person.disable",
        "person.enable",
    ]
    assert all(row.actor.startswith("command ") for row in rows)
    assert token_of(made["sign_in_url"]) not in repr(rows)


def token_of(sign_in_url: str) -> str:
    return sign_in_url.partition("token=")[2]


def is_good(prompt: Prompt, sign_in_url: str) -> bool:
    """Whether somebody would get in by it."""

    async def look() -> bool:
        async with opened(f"sqlite:///{prompt.data_dir / 'stoplist.db'}") as database:
            return await links.person_of_link(database, Clock(), token_of(sign_in_url)) is not None

    return asyncio.run(look())


def audit(prompt: Prompt) -> Any:
    async def rows() -> Any:
        async with opened(f"sqlite:///{prompt.data_dir / 'stoplist.db'}") as database:
            return await audit_rows(database)

    return asyncio.run(rows())
