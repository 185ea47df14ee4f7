"""The rules for items in docs/interface.md section D6, each with items that follow it and items that break it."""

from typing import Any, get_args

import pytest

from stoplist.errors import InvalidItem
from stoplist.unsubscribes.model import SentReason
from tests.deployment import in_loop
from tests.fakes import FakeClock
from tests.unsubscribes.partner import OptOutDeployment, Sent, back, out, written

ANN = "ann@x.org"
NOW_MS = FakeClock().now_ms()
REASONS = {
    "unsubscribe", "stop_keyword", "complaint", "bounce", "invalid_address", "manual", "legal", "import", "consent",
}  # fmt: skip

GOOD: dict[str, tuple[Sent, dict[str, Any]]] = {
    "an address alone": (out(ANN), {"reason": "unsubscribe", "source": None, "occurred_ms": NOW_MS}),
    "all that is null": (
        {"address": ANN, "status": None, "occurred_at": None, "reason": None, "source": None},
        {"status": "unsubscribed", "reason": "unsubscribe", "source": None},
    ),
    "an opt-out with a reason": (out(ANN, reason="legal"), {"reason": "legal"}),
    "a resubscription": (back(ANN, written(NOW_MS)), {"status": "resubscribed", "reason": "consent"}),
    "its only reason": (back(ANN, written(NOW_MS), reason="consent"), {"reason": "consent"}),
    "an empty source": (out(ANN, source=""), {"source": ""}),
    "a source of 200 characters": (out(ANN, source="\U0001f4e8" * 200), {"source": "\U0001f4e8" * 200}),
    "a source with lines": (out(ANN, source=" a\n\tb\x01 "), {"source": " a  b  "}),
    "a source for terminals": (
        out(ANN, source="\x1b[2J\x9b1m\x7f\u202eabc\u2066\u061c\u200f\u2028 é\u200d\u00ad"),
        {"source": " [2J 1m  abc    \x20é\u200d\u00ad"},
    ),
    "an opt-out five minutes ahead": (out(ANN, written(NOW_MS + 300_000)), {"occurred_ms": NOW_MS + 300_000}),
    "a resubscription of now": (back(ANN, written(NOW_MS)), {"occurred_ms": NOW_MS}),
    "a part of a millisecond": (out(ANN, "2026-03-01T09:30:00.0019Z"), {"occurred_ms": 1_772_357_400_001}),
    "the first time there is": (out(ANN, "0001-01-01T00:00:00Z"), {"occurred_ms": -62_135_596_800_000}),
    "a time before 1970": (out(ANN, "1969-12-31T23:59:59.9999Z"), {"occurred_ms": -1}),
    "white space around an address": (out(" \t ann@x.org\r\n"), {"address": ANN}),
}

BAD: dict[str, tuple[Sent, str]] = {
    "no address": (out("nobody"), "no @"),
    "a NUL in the address": (out("a\0b@x.org"), "not allowed"),
    "a NUL in the source": (out(ANN, source="a\0b"), "NUL"),
    "a time without an offset": (out(ANN, "2026-03-02T08:31:07"), "RFC 3339"),
    "a time with a space": (out(ANN, "2026-03-01 09:30:00Z"), "RFC 3339"),
    "a second 60": (out(ANN, "2016-12-31T23:59:60Z"), "RFC 3339"),
    "the year 0000": (out(ANN, "0000-03-01T09:30:00Z"), "RFC 3339"),
    "a number": (out(ANN, "1772357400"), "RFC 3339"),
    "an empty time": (out(ANN, ""), "RFC 3339"),
    "a NUL in the time": (out(ANN, "2026-03-01T09:30:00Z\0"), "RFC 3339"),
    "an opt-out more than five minutes ahead": (out(ANN, written(NOW_MS + 300_001)), "future"),
    "a resubscription a millisecond ahead": (back(ANN, written(NOW_MS + 1)), "future"),
    "a resubscription without a time": ({"address": ANN, "status": "resubscribed"}, "occurred_at is missing"),
    "a resubscription with another reason": (back(ANN, written(NOW_MS), reason="unsubscribe"), "consent"),
    "an opt-out with consent": (out(ANN, reason="consent"), "consent"),
}


@pytest.mark.parametrize(("item", "kept"), GOOD.values(), ids=GOOD)
@in_loop
async def test_a_valid_item_is_stored_with_its_defaults(
    deployment: OptOutDeployment, item: Sent, kept: dict[str, Any]
) -> None:
    """Missing fields have their defaults, others are kept as sent; times are cut to the millisecond."""
    organization = await deployment.new_organization()
    await organization.submit(item)
    (row,) = await organization.rows("unsubscribes", "seq")
    assert {name: row[name] for name in kept} == kept


@pytest.mark.parametrize(("item", "text"), BAD.values(), ids=BAD)
@in_loop
async def test_an_invalid_item_gets_an_error_that_names_the_rule(
    deployment: OptOutDeployment, item: Sent, text: str
) -> None:
    """The text does not repeat what was sent; errors of other items are named by their index."""
    organization = await deployment.new_organization()
    with pytest.raises(InvalidItem) as refusal:
        await organization.submit(out("good@x.org"), item, out("good2@x.org"))
    (error,) = refusal.value.extra["item_errors"]
    assert error.item_index == 1
    assert text in error.item_error
    sent = [str(value) for name, value in item.items() if value and name not in ("status", "reason")]
    assert [value for value in sent if value in error.item_error] == []
    assert await organization.rows("unsubscribes", "seq") == []


@in_loop
async def test_the_address_rule_is_that_of_the_channel(deployment: OptOutDeployment) -> None:
    """A phone number is not an e-mail address, and the other way round."""
    for channel, good, bad in (("email", ANN, "+12025550123"), ("sms", "+1 (202) 555-0123", ANN)):
        organization = (await deployment.new_organization()).on(channel)
        answer = await organization.submit(out(good), out(bad), is_lenient=True)
        assert [error.item_index for error in answer.item_errors] == [1]  # type: ignore[union-attr]


@in_loop
async def test_the_servers_clock_decides_what_is_in_the_future(deployment: OptOutDeployment) -> None:
    """A time in the future is accepted once it has come."""
    organization = await deployment.new_organization()
    ahead = back(ANN, written(deployment.now_ms + 10))
    with pytest.raises(InvalidItem):
        await organization.submit(ahead)
    deployment.clock.advance(0.010)
    assert (await organization.submit(ahead)).created == 1


def test_the_reasons_are_those_of_the_table() -> None:
    """No item may send `correction`."""
    assert set(get_args(SentReason)) == REASONS
