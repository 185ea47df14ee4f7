"""`stoplist org` (docs/interface.md sections D5 and D9)."""

import re

import pytest

from tests.cli.command_line import Prompt

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_create_prints_the_organization(prompt: Prompt) -> None:
    """Slug, name and the default group, which is null without --default-group."""
    assert prompt.json("org", "create", "beta", "--name", " Beta ") == {
        "slug": "beta",
        "name": "Beta",
        "default_group_id": None,
    }
    created = prompt.json("org", "create", "gamma", "--name", "Gamma", "--default-group", "Newsletter")
    assert re.fullmatch("grp_[0-9A-Za-z]{22}", created["default_group_id"])
    (group,) = prompt.json("group", "list", "--org", "gamma")
    assert (group["group_id"], group["name"]) == (created["default_group_id"], "Newsletter")


@pytest.mark.parametrize("slug", ["a", "0", "a-", "a" * 63, "x--y"])
def test_any_well_formed_slug_is_accepted(prompt: Prompt, slug: str) -> None:
    """`[a-z0-9][a-z0-9-]{0,62}`."""
    assert prompt.json("org", "create", slug, "--name", "Café №1")["slug"] == slug


def test_a_slug_stays_taken(prompt: Prompt) -> None:
    """It stays taken even once its organization is closed."""
    assert "taken" in prompt.refused("org", "create", "acme", "--name", "Other")
    prompt.ok("org", "close", "acme")
    assert "taken" in prompt.refused("org", "create", "acme", "--name", "Other")


def test_list_includes_closed_organizations(prompt: Prompt) -> None:
    """Sorted by slug."""
    prompt.ok("org", "create", "aardvark", "--name", "Aardvark")
    prompt.ok("org", "close", "acme")
    first, second = prompt.json("org", "list")
    assert (first["slug"], first["closed_at"]) == ("aardvark", None)
    assert (second["slug"], second["name"]) == ("acme", "Acme Shoes")
    assert TIME.fullmatch(second["created_at"])
    assert TIME.fullmatch(second["closed_at"])


def test_list_is_a_table_for_people(empty: Prompt) -> None:
    """Or a hint if there is no organization."""
    empty.ok("migrate")
    assert "`stoplist org create`" in empty.ok("org", "list")
    assert empty.json("org", "list") == []
    empty.ok("org", "create", "acme", "--name", "Acme")
    assert empty.ok("org", "list").splitlines() == [
        "slug  name  default_group_id  closed_at",
        "acme  Acme  -                 -",
    ]


def test_rename_changes_only_the_name(prompt: Prompt) -> None:
    """It may be repeated."""
    for _ in range(2):
        renamed = prompt.json("org", "rename", "acme", "--name", "Acme Boots")
        assert (renamed["slug"], renamed["name"]) == ("acme", "Acme Boots")


def test_a_closed_organization_cannot_be_changed(prompt: Prompt) -> None:
    """Closing is permanent: no command changes or reopens the organization."""
    group = prompt.json("group", "create", "--org", "acme", "--name", "News")["group_id"]
    assert TIME.fullmatch(prompt.json("org", "close", "acme")["closed_at"])
    for command in (
        ["org", "close", "acme"],
        ["org", "rename", "acme", "--name", "x"],
        ["org", "set-default-group", "acme", group],
        ["group", "create", "--org", "acme", "--name", "x"],
        ["group", "retire", group],
        ["key", "create", "--label", "x", "--org", "acme"],
    ):
        assert "closed" in prompt.refused(*command)


def test_the_default_group_is_an_active_one_of_the_organization(prompt: Prompt) -> None:
    """Groups of another organization and retired groups are refused."""
    prompt.ok("org", "create", "beta", "--name", "Beta")
    first, second = (prompt.json("group", "create", "--org", "acme", "--name", name)["group_id"] for name in "AB")
    for group in (first, second, second):
        assert prompt.json("org", "set-default-group", "acme", group) == {"slug": "acme", "default_group_id": group}
        assert prompt.json("org", "list")[0]["default_group_id"] == group
    assert "another organization" in prompt.refused("org", "set-default-group", "beta", first)
    prompt.ok("group", "retire", first)
    assert "retired" in prompt.refused("org", "set-default-group", "acme", first)
