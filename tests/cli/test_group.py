"""`stoplist group` (docs/interface.md sections D5 and D9)."""

import re

from tests.cli.command_line import Prompt


def test_create_prints_the_group(prompt: Prompt) -> None:
    created = prompt.json("group", "create", "--org", "acme", "--name", "Reminders")
    assert re.fullmatch("grp_[0-9A-Za-z]{22}", created.pop("group_id"))
    assert created == {"org_slug": "acme", "name": "Reminders", "is_default": False}


def test_a_new_default_replaces_the_old_one(prompt: Prompt) -> None:
    """An organization has at most one default group."""
    for name in ("A", "B"):
        created = prompt.json("group", "create", "--org", "acme", "--name", name, "--default")
        assert created["is_default"]
        assert prompt.json("org", "list")[0]["default_group_id"] == created["group_id"]
    assert [group["is_default"] for group in prompt.json("group", "list", "--org", "acme")] == [False, True]


def test_a_name_is_unique_in_its_organization(prompt: Prompt) -> None:
    """Retired groups included; another organization may use the name too."""
    created = prompt.json("group", "create", "--org", "acme", "--name", "A")
    assert "already" in prompt.refused("group", "create", "--org", "acme", "--name", "A")
    prompt.ok("group", "retire", created["group_id"])
    assert "already" in prompt.refused("group", "create", "--org", "acme", "--name", "A")
    prompt.ok("org", "create", "beta", "--name", "Beta")
    prompt.ok("group", "create", "--org", "beta", "--name", "A")


def test_retiring_the_default_leaves_the_organization_without_one(prompt: Prompt) -> None:
    """A group can be retired only once."""
    created = prompt.json("group", "create", "--org", "acme", "--name", "A", "--default")
    retired = prompt.json("group", "retire", created["group_id"])
    assert (retired["retired_at"] is not None, retired["is_default"]) == (True, False)
    assert prompt.json("org", "list")[0]["default_group_id"] is None
    assert "already" in prompt.refused("group", "retire", created["group_id"])


def test_list_is_in_the_order_of_creation(prompt: Prompt) -> None:
    """The list is an array with --json, otherwise a table, or a hint if there is no group."""
    assert prompt.json("group", "list", "--org", "acme") == []
    assert "`stoplist group create`" in prompt.ok("group", "list", "--org", "acme")
    for name in ("Zebra", "Ant"):
        prompt.ok("group", "create", "--org", "acme", "--name", name)
    groups = prompt.json("group", "list", "--org", "acme")
    assert [group["name"] for group in groups] == ["Zebra", "Ant"]
    assert groups[0].keys() == {"group_id", "org_slug", "name", "is_default", "created_at", "retired_at"}
    head, *rows = prompt.ok("group", "list", "--org", "acme").splitlines()
    assert head.split() == ["group_id", "name", "is_default", "retired_at"]
    assert [row.split()[1:] for row in rows] == [["Zebra", "no", "-"], ["Ant", "no", "-"]]
