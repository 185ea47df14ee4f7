"""`stoplist key` (docs/interface.md sections 2.1, D2, D3 and D9)."""

import re
from typing import Any

import pytest

from stoplist.clock import Clock
from stoplist.oauth.usage import Usage
from stoplist.rfc3339 import format_ms
from tests.builders import audit_rows, on_database
from tests.cli.command_line import Prompt

CLIENT_ID, SECRET = re.compile("svc_ci_[0-9A-Za-z]{22}"), re.compile("svc_cs_[0-9A-Za-z]{49}")
SHOWN = {
    "client_id", "label", "secret_prefix", "active", "organizations", "default_organization", "permissions",
    "token_per_minute", "api_per_minute", "refresh_needs_secret", "last_used_at", "created_at",
}  # fmt: skip


def create_key(prompt: Prompt, *options: str) -> dict[str, Any]:
    """Create a key of `acme`."""
    key: dict[str, Any] = prompt.json("key", "create", "--label", "Nightly", "--org", "acme", *options)
    return key


def test_create_prints_the_key_with_its_secret_once(prompt: Prompt) -> None:
    """The hint for people goes to stderr; no other command shows the secret again."""
    result = prompt.run("key", "create", "--label", "Nightly", "--org", "acme", "--json")
    assert "not shown again" in result.err
    key = create_key(prompt)
    assert key.keys() == SHOWN | {"client_secret"}
    assert CLIENT_ID.fullmatch(key["client_id"])
    assert SECRET.fullmatch(key["client_secret"])
    assert key["secret_prefix"] == key["client_secret"][:11]
    assert (key["label"], key["organizations"], key["default_organization"]) == ("Nightly", ["acme"], "acme")
    assert (key["active"], key["last_used_at"], key["permissions"]) == (True, None, ["read", "unsubscribe"])
    assert (key["token_per_minute"], key["api_per_minute"]) == (10, 60)
    for command in (["list"], ["show", key["client_id"]], ["deactivate", key["client_id"]]):
        for flags in ([], ["--json"]):
            assert key["client_secret"] not in prompt.ok("key", *command, *flags)


def test_create_takes_several_organizations_and_permissions(prompt: Prompt) -> None:
    """The permissions given replace those that a new key has by default."""
    prompt.ok("org", "create", "beta", "--name", "Beta")
    key = create_key(
        prompt, "--org", "beta", "--default-org", "beta", "--permission", "resubscribe", "--permission", "read"
    )
    assert (key["organizations"], key["default_organization"]) == (["acme", "beta"], "beta")
    assert key["permissions"] == ["read", "resubscribe"]
    assert create_key(prompt, "--org", "acme")["organizations"] == ["acme"]


def test_create_needs_organizations_that_exist(prompt: Prompt) -> None:
    """Unknown and closed ones are refused, and no key is created."""
    assert "no organization" in prompt.refused("key", "create", "--label", "x", "--org", "beta")
    prompt.ok("org", "close", "acme")
    assert "closed" in prompt.refused("key", "create", "--label", "x", "--org", "acme")
    assert prompt.json("key", "list") == []


def test_list_is_oldest_first(prompt: Prompt) -> None:
    """The list is an array with --json, otherwise a table, or a hint if there is no key."""
    assert prompt.json("key", "list") == []
    assert "`stoplist key create`" in prompt.ok("key", "list")
    first, second = create_key(prompt), create_key(prompt)
    keys = prompt.json("key", "list")
    assert {key["client_id"] for key in keys} == {first["client_id"], second["client_id"]}
    assert [key["created_at"] for key in keys] == sorted(key["created_at"] for key in keys)
    assert keys[0].keys() == SHOWN
    head, *rows = prompt.ok("key", "list").splitlines()
    assert head.split() == ["label", "client_id", "secret_prefix", "active", "last_used_at", "created_at"]
    assert [row.split()[0::3][:2] for row in rows] == [["Nightly", "yes"]] * 2


def test_deactivate_and_activate_switch_a_key(prompt: Prompt) -> None:
    """Each may be repeated; a repetition is not audited."""
    client_id = create_key(prompt)["client_id"]
    for verb, is_active in (("deactivate", False), ("deactivate", False), ("activate", True), ("activate", True)):
        assert prompt.json("key", verb, client_id)["active"] is is_active
        assert prompt.json("key", "show", client_id)["active"] is is_active
    assert [row.action for row in on_database(prompt.database_url, audit_rows)][-3:] == [
        "key.create",
        "key.deactivate",
        "key.activate",
    ]


def test_revoke_tokens_leaves_the_key_as_it_is(prompt: Prompt) -> None:
    """It prints the key, and may be repeated."""
    key = create_key(prompt)
    del key["client_secret"]
    assert prompt.json("key", "revoke-tokens", key["client_id"]) == key
    assert prompt.json("key", "revoke-tokens", key["client_id"]) == key


def test_rotate_secret_prints_the_new_one(prompt: Prompt) -> None:
    """It prints the two fields alone; an inactive key stays inactive."""
    key = create_key(prompt)
    prompt.ok("key", "deactivate", key["client_id"])
    rotated = prompt.json("key", "rotate-secret", key["client_id"])
    assert rotated.keys() == {"client_id", "client_secret"}
    assert SECRET.fullmatch(rotated["client_secret"])
    assert rotated["client_secret"] != key["client_secret"]
    shown = prompt.json("key", "show", key["client_id"])
    assert (shown["secret_prefix"], shown["active"]) == (rotated["client_secret"][:11], False)


def test_limits_sets_each_ceiling_separately(prompt: Prompt) -> None:
    """`default` restores the default; without an option both are shown."""
    client_id = create_key(prompt)["client_id"]
    for options, token, api in (
        (["--token-per-minute", "1000000000"], 1_000_000_000, 60),
        (["--api-per-minute", "1"], 1_000_000_000, 1),
        (["--token-per-minute", "default"], 10, 1),
        ([], 10, 1),
        (["--api-per-minute", "default", "--token-per-minute", "007"], 7, 60),
    ):
        limits = prompt.json("key", "limits", client_id, *options)
        assert limits == {"client_id": client_id, "token_per_minute": token, "api_per_minute": api}
        assert prompt.json("key", "show", client_id)["api_per_minute"] == api


def test_update_replaces_the_given_values(prompt: Prompt) -> None:
    """Each option separately; a single organization also becomes the default."""
    prompt.ok("org", "create", "beta", "--name", "Beta")
    client_id = create_key(prompt)["client_id"]

    def update(*options: str) -> tuple[str, list[str], str, list[str]]:
        key = prompt.json("key", "update", client_id, *options)
        return key["label"], key["organizations"], key["default_organization"], key["permissions"]

    both = ["acme", "beta"]
    assert update("--label", "Daily") == ("Daily", ["acme"], "acme", ["read", "unsubscribe"])
    assert update("--permission", "read") == ("Daily", ["acme"], "acme", ["read"])
    assert update("--org", "acme", "--org", "beta", "--default-org", "acme") == ("Daily", both, "acme", ["read"])
    assert update("--default-org", "beta") == ("Daily", both, "beta", ["read"])
    assert update("--org", "acme") == ("Daily", ["acme"], "acme", ["read"])
    for option, is_needed in (("--refresh-needs-secret", True), ("--no-refresh-needs-secret", False)):
        assert update(option) == ("Daily", ["acme"], "acme", ["read"])
        assert prompt.json("key", "show", client_id)["refresh_needs_secret"] == is_needed
    assert create_key(prompt, "--refresh-needs-secret")["refresh_needs_secret"]
    assert "must be one of the organizations" in prompt.refused("key", "update", client_id, "--default-org", "beta")
    assert "no organization" in prompt.refused("key", "update", client_id, "--org", "nowhere")


def test_update_to_several_organizations_needs_a_default(prompt: Prompt) -> None:
    """Section D9, wrong usage: the default is never guessed, even if the former one is among them."""
    prompt.ok("org", "create", "beta", "--name", "Beta")
    client_id = create_key(prompt)["client_id"]
    for organizations in (("--org", "acme", "--org", "beta"), ("--org", "beta", "--org", "acme")):
        result = prompt.run("key", "update", client_id, *organizations)
        assert (result.status, "--default-org" in result.err) == (2, True)
    assert prompt.run("key", "update", client_id, "--org", "acme", "--default-org", "beta").status == 2
    kept = prompt.json("key", "update", client_id, "--org", "acme", "--org", "acme")
    assert kept["organizations"] == ["acme"]


def test_show_prints_the_use_and_the_last_refusals(prompt: Prompt) -> None:
    """It lists them by day and by request id; days and times are in RFC 3339."""
    client_id = create_key(prompt)["client_id"]
    now_ms = Clock().now_ms()  # the command shows the last 30 days
    at = format_ms(now_ms)

    usage = Usage()
    for error in (None, "invalid_client", "rate_limited"):
        usage.note(client_id, now_ms=now_ms, is_authenticated=error is None, error=error, request_id="ab" * 12)
    on_database(prompt.database_url, usage.flush)
    shown = prompt.json("key", "show", client_id)
    assert shown.keys() == SHOWN | {"days", "refusals"}
    assert shown["last_used_at"] == at
    assert shown["days"] == [{"day": at[:10], "requests": 3, "limit_refusals": 1, "failed_authentications": 1}]
    assert shown["refusals"][0] == {
        "at": at,
        "request_id": "ab" * 12,
        "error": shown["refusals"][0]["error"],
    }
    text = prompt.ok("key", "show", client_id)
    assert f"{at[:10]}  3         1               1" in text
    assert "ab" * 12 in text


def test_show_says_that_a_key_was_not_used(prompt: Prompt) -> None:
    """Instead of two empty tables."""
    client_id = create_key(prompt)["client_id"]
    shown = prompt.json("key", "show", client_id)
    assert (shown["days"], shown["refusals"], shown["last_used_at"]) == ([], [], None)
    text = prompt.ok("key", "show", client_id)
    assert "Not used in the last 30 days." in text
    assert "No refused request." in text


def test_every_change_is_in_the_audit_with_who_made_it(prompt: Prompt) -> None:
    """The entry has the account of the machine, never a secret."""
    key = create_key(prompt)
    client_id = key["client_id"]
    secret = prompt.json("key", "rotate-secret", client_id)["client_secret"]
    prompt.ok("key", "revoke-tokens", client_id)
    prompt.ok("key", "limits", client_id, "--api-per-minute", "5")
    prompt.ok("key", "update", client_id, "--label", "x")
    prompt.ok("key", "show", client_id)
    rows = [row for row in on_database(prompt.database_url, audit_rows) if row.target == client_id]
    assert [row.action for row in rows] == [
        "key.create",
        "key.rotate_secret",
        "key.revoke_tokens",
        "key.limits",
        "key.update",
    ]
    assert all(re.fullmatch(r"command \S+", row.actor) for row in rows)
    assert not any(text in repr(rows) for text in (key["client_secret"], secret))


@pytest.mark.parametrize("verb", ["deactivate", "activate", "revoke-tokens", "rotate-secret", "show", "limits"])
def test_a_key_of_another_environment_is_unknown(prompt: Prompt, verb: str) -> None:
    """No other database has the key."""
    assert "`stoplist key list`" in prompt.refused("key", verb, "svc_ci_0123456789ABCDEFGHIJKL")


def test_help_says_the_defaults_of_a_new_key(prompt: Prompt) -> None:
    """It also says that a change leaves the rest as it is."""
    create, update = (" ".join(prompt.ok("key", name, "--help").split()) for name in ("create", "update"))
    for default in ("default: the only --org", "default: read and unsubscribe", "default: no"):
        assert f"({default})" in create
    assert update.count("(default: unchanged") == 5
