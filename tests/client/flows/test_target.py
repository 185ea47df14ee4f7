"""The organization and group of a call. Source: docs/interface.md section D5."""

from typing import Any

import pytest
from stoplist_client.errors import ConfigurationError
from stoplist_client.flows.target import Target, channel_path

NOTHING, ACME = Target(), Target("acme")
ACME_NEWS = Target("acme", "grp_news")
NEWS = Target(None, "grp_news")


@pytest.mark.parametrize(
    ("client", "call", "expected"),
    [
        (NOTHING, {}, {}),
        (NOTHING, {"org_slug": "other"}, {"org_slug": "other"}),
        (NOTHING, {"group_id": "grp_x"}, {"group_id": "grp_x"}),
        (NOTHING, {"all_groups": True}, {"all_groups": True}),
        (ACME, {}, {"org_slug": "acme"}),
        (ACME, {"org_slug": "other"}, {"org_slug": "other"}),
        (ACME, {"group_id": "grp_x"}, {"org_slug": "acme", "group_id": "grp_x"}),
        (ACME, {"all_groups": True}, {"org_slug": "acme", "all_groups": True}),
        (ACME_NEWS, {}, {"org_slug": "acme", "group_id": "grp_news"}),
        (ACME_NEWS, {"org_slug": "acme"}, {"org_slug": "acme", "group_id": "grp_news"}),
        (ACME_NEWS, {"org_slug": "other"}, {"org_slug": "other"}),
        (ACME_NEWS, {"group_id": "grp_x"}, {"org_slug": "acme", "group_id": "grp_x"}),
        (ACME_NEWS, {"all_groups": True}, {"org_slug": "acme", "all_groups": True}),
        (NEWS, {}, {"group_id": "grp_news"}),
        (NEWS, {"org_slug": "other"}, {"org_slug": "other"}),
        (NEWS, {"all_groups": True}, {"all_groups": True}),
    ],
)
def test_call_overrides_the_client(client: Target, call: dict[str, Any], expected: dict[str, Any]) -> None:
    """The group of the client belongs to its organization, and is never sent with another one."""
    options = {"org_slug": None, "group_id": None} | call
    target = client.for_call(options.pop("org_slug"), options.pop("group_id"), **options)
    assert target.fields() == expected


@pytest.mark.parametrize(
    "named",
    [("", None), (None, ""), (5, None), (None, b"grp_1"), ("acme", "grp_x", True)],
)
def test_ambiguous_target_is_refused(named: tuple[Any, ...]) -> None:
    """An empty name would mean the default of the key; a group with all groups means two things."""
    with pytest.raises(ConfigurationError):
        Target(*named)


def test_query_is_encoded() -> None:
    """No name can add another parameter."""
    assert Target("a&b=c", "ü +").query() == ["org_slug=a%26b%3Dc", "group_id=%C3%BC%20%2B"]


@pytest.mark.parametrize("channel", ["fax", "", "email/../sms", None, 5])
def test_unknown_channel_is_refused(channel: Any) -> None:
    with pytest.raises(ConfigurationError, match="email, sms, phone"):
        channel_path(channel)
