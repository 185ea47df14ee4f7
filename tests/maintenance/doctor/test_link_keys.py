"""The doctor's check of links without an acceptable address (docs/interface.md section D15)."""

import pytest

from stoplist.links.model import LinkKeyDetails
from stoplist.maintenance.doctor.link_keys import LinkKeyFacts, link_keys
from tests.constants import DAY_MS

NOW_MS = 1_800_000_000_000


def key(last_unusable_ms: int | None) -> LinkKeyDetails:
    return LinkKeyDetails(
        link_key_id="lnk_0123456789abcdef",
        org_slug="acme",
        state="active",
        created_ms=0,
        retired_ms=None,
        revoked_ms=None,
        turned_away=0,
        unusable=0 if last_unusable_ms is None else 7,
        last_unusable_ms=last_unusable_ms,
    )


@pytest.mark.parametrize(
    ("last_unusable_ms", "status"),
    [(None, "ok"), (NOW_MS - 30 * DAY_MS - 1, "ok"), (NOW_MS - 30 * DAY_MS, "warning"), (NOW_MS, "warning")],
)
def test_unusable_links_of_the_last_30_days_are_a_warning(last_unusable_ms: int | None, status: str) -> None:
    """The warning names the key, its organization and the number of clicks."""
    finding = link_keys(LinkKeyFacts([key(None), key(last_unusable_ms)], []), NOW_MS)
    assert finding.status == status
    if status == "warning":
        assert "lnk_0123456789abcdef (acme)" in finding.text
        assert "7 times" in finding.text


def test_without_a_database_nothing_is_checked() -> None:
    assert link_keys(None, NOW_MS).status == "not checked"
