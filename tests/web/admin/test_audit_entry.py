"""Audit entries in words: details and links. docs/interface.md section D11."""

from typing import Any

import pytest

from stoplist.actor import ADMIN, ADMINISTER, Actor
from stoplist.audit.actions import ACTIONS
from stoplist.audit.reading import AuditEntry
from stoplist.web.admin.audit.audit_entry import Fact, facts_of, path_of, title_of

ADMINISTRATOR = Actor(kind="person", id="root@example.org", may=frozenset((ADMINISTER,)))
ADMIN_OF_ACME = Actor(kind="person", id="ann@example.org", roles={"acme": ADMIN})


def entry(action: str = "key.update", target: str = "svc_ci_1", **detail: Any) -> AuditEntry:
    return AuditEntry(
        audit_id=1,
        at_ms=0,
        actor_kind="person",
        actor_id="root@example.org",
        source_ip=None,
        request_id=None,
        action=action,
        target=target,
        detail=detail,
        organizations=["acme"],
    )


@pytest.mark.parametrize(
    ("detail", "facts"),
    [
        ({}, []),
        ({"name": "Acme"}, ["name: Acme"]),
        ({"is_administrator": True, "is_default": False}, ["administrator: yes", "default group: no"]),
        ({"covers": ["acme", "bolt"], "permissions": []}, ["organizations: acme, bolt", "permissions: none"]),
        ({"role": None, "org_slug": "acme", "was": "admin"}, ["role: none", "organization: acme", "before: admin"]),
        ({"rows": 1234567}, ["rows: 1,234,567"]),
        ({"something_new": 1.5}, ["something new: 1.5"]),
        ({"was": None, "role": "viewer"}, ["role: viewer", "before: none"]),
        ({"nested": {"one": {"two": [1, None, True]}}}, ["nested, one, two: 1, none, yes"]),
        ({"list": [{"a_b": 1}]}, ["list: a b 1"]),
    ],
)
def test_details_are_names_and_values(detail: dict[str, Any], facts: list[str]) -> None:
    """No value that an operation records shows braces or quotes."""
    shown = list(map(str, facts_of(entry(**detail))))
    assert shown == facts
    assert not set("{}[]\"'") & set("".join(shown))


def test_only_changed_values_of_a_state_are_shown() -> None:
    changed = entry(label="New", permissions=["read"], covers=["acme"], was={"label": "Old", "permissions": ["read"]})
    assert facts_of(changed) == [Fact("label", "New", "Old"), Fact("organizations", "acme")]
    assert str(facts_of(changed)[0]) == "label: New (before: Old)"
    lost = entry(label="Same", was={"label": "Same", "hue": "red"})
    assert facts_of(lost) == [Fact("hue before", "red")]


def test_an_unknown_action_is_shown_by_its_name() -> None:
    """It may come from a newer release."""
    assert title_of(entry("moon.land")) == "moon.land"
    assert title_of(entry("key.create")) == ACTIONS["key.create"]


@pytest.mark.parametrize(
    ("action", "target", "path"),
    [
        ("key.create", "svc_ci_1", "/settings/keys/svc_ci_1"),
        ("client.reuse_alarm", "svc_ci_1", "/settings/keys/svc_ci_1"),
        ("organization.close", "acme", "/organizations/acme"),
        ("group.rename", "grp_1", "/organizations/acme"),
        ("submission.reverse", "sub_1", "/unsubscribes/sub_1"),
        ("unsubscribe.by_hand", "sub_1", "/unsubscribes/sub_1"),
        ("database.restored", "database", None),
        ("moon.land", "moon", None),
        ("key.create", "../?x=<y>", "/settings/keys/..%2F%3Fx%3D%3Cy%3E"),
    ],
)
def test_an_entry_links_to_its_target(action: str, target: str, path: str | None) -> None:
    for actor in (ADMINISTRATOR, ADMIN_OF_ACME):
        assert path_of(actor, entry(action, target)) == path


def test_only_administrators_get_links_to_people() -> None:
    found = path_of(ADMINISTRATOR, entry("person.role", "ann+x@example.org"))
    assert found is not None
    assert found.startswith("/settings/people/ann")
    assert path_of(ADMIN_OF_ACME, entry("person.role", "ann@example.org")) is None
    assert path_of(ADMINISTRATOR, entry("session.end", "x")) is None
