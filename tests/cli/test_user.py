"""`stoplist user`: the people who use the admin pages."""

import re

import pytest

from stoplist import ids
from stoplist.clock import Clock
from stoplist.staff import links
from stoplist.web.request_context import SIGN_IN_LINK_PATH
from tests.builders import audit_rows, on_database
from tests.cli.command_line import Prompt

ANN = "ann@example.org"
SHOWN = {"email", "administrator", "roles", "disabled", "has_password", "two_step", "created_at", "last_sign_in_at"}


def test_create_prints_a_link_that_works(prompt: Prompt) -> None:
    """The link is below the base address, the e-mail address in canonical form."""
    created = prompt.json("user", "create", "Ann@Example.org", "--administrator")
    assert created.keys() == {"email", "sign_in_url", "expires_at"}
    assert created["email"] == ANN
    assert created["sign_in_url"].startswith(f"https://localhost:8443{SIGN_IN_LINK_PATH}?token={ids.SIGN_IN_LINK}")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", created["expires_at"])
    assert is_valid(prompt, created["sign_in_url"])


def test_the_link_is_below_the_configured_base_address(prompt: Prompt) -> None:
    prompt.set(BASE_URL="https://stop.example.org")
    text = prompt.run("user", "create", ANN, "--org", "acme", "--role", "viewer")
    assert f"https://stop.example.org{SIGN_IN_LINK_PATH}?token=" in text.out
    assert "good once" in text.err


@pytest.mark.parametrize("words", [["create", ANN, "--administrator"], ["link", ANN]], ids=" ".join)
def test_production_needs_a_base_address_for_links(empty: Prompt, words: list[str]) -> None:
    """A link to localhost works for nobody else; nothing is changed. The database says that it is production."""
    empty.set(ENVIRONMENT="production")
    empty.ok("migrate")
    empty.set(ENVIRONMENT="development")
    assert "STOPLIST_BASE_URL must be set in production" in empty.refused("user", *words)
    assert empty.json("user", "list") == []


def test_list_shows_all_people(prompt: Prompt) -> None:
    """It shows their rights, as a table and as JSON."""
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


def test_a_new_link_replaces_the_earlier_one(prompt: Prompt) -> None:
    """However the address is written."""
    first = prompt.json("user", "create", ANN, "--administrator")
    second = prompt.json("user", "link", "ANN@example.org")
    assert second.keys() == first.keys()
    assert (is_valid(prompt, first["sign_in_url"]), is_valid(prompt, second["sign_in_url"])) == (False, True)
    third = prompt.json("user", "link", ANN, "--without-two-step")
    assert is_valid(prompt, third["sign_in_url"])


def test_disable_and_enable(prompt: Prompt) -> None:
    """A disabled person gets no link, and earlier links stay invalid."""
    created = prompt.json("user", "create", ANN, "--administrator")
    assert prompt.json("user", "disable", ANN)["disabled"] is True
    assert not is_valid(prompt, created["sign_in_url"])
    assert "Enable" in prompt.refused("user", "link", ANN)
    assert prompt.json("user", "enable", ANN)["disabled"] is False
    assert not is_valid(prompt, created["sign_in_url"])


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
    """The exit status is 2, and no person is created."""
    assert what in prompt.wrong_usage("user", "create", *arguments)
    assert prompt.json("user", "list") == []


def test_impossible_requests_are_refused(prompt: Prompt) -> None:
    """The exit status is 1, and the error says where to look."""
    prompt.ok("user", "create", ANN, "--administrator")
    assert "already" in prompt.refused("user", "create", "ANN@example.org", "--administrator")
    assert "no organization" in prompt.refused(
        "user", "create", "bob@example.org", "--org", "nowhere", "--role", "admin"
    )
    for verb in ("link", "disable", "enable"):
        assert "`stoplist user list`" in prompt.refused("user", verb, "nobody@example.org")
        assert "`stoplist user list`" in prompt.refused("user", verb, "no address")


def test_every_change_is_in_the_audit_without_the_link(prompt: Prompt) -> None:
    """The entry has the account of the machine."""
    created = prompt.json("user", "create", ANN, "--administrator")
    prompt.ok("user", "link", ANN)
    prompt.ok("user", "disable", ANN)
    prompt.ok("user", "enable", ANN)
    rows = [row for row in on_database(prompt.database_url, audit_rows) if row.target == ANN]
    assert [row.action for row in rows] == [
        "person.create",
        "person.link",
        "person.link",
        "person.disable",
        "person.enable",
    ]
    assert all(row.actor.startswith("command ") for row in rows)
    assert token_of(created["sign_in_url"]) not in repr(rows)


def token_of(sign_in_url: str) -> str:
    return sign_in_url.partition("token=")[2]


def is_valid(prompt: Prompt, sign_in_url: str) -> bool:
    """Return whether the link can be used."""
    return on_database(prompt.database_url, links.person_of_link, Clock(), token_of(sign_in_url)) is not None
