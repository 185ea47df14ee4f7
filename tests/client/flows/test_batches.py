"""How items become bodies. Source: docs/interface.md section D6 (POST)."""

import itertools
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stoplist_client.errors import ConfigurationError
from stoplist_client.flows import batches
from stoplist_client.flows.acts import Encoder, moment_text
from stoplist_client.flows.batches import Batch, Batches
from stoplist_client.flows.flow import Take
from stoplist_client.flows.target import Target
from stoplist_client.model import Item

from tests.client.driving import FixedEnvironment

pytestmark = pytest.mark.interpreter

STAMP = "2027-01-15T08:00:00.000Z"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = "ann@example.com"


class Text(str):
    """A kind of text, as libraries derive them."""

    __slots__ = ()


def cut(items: Iterable[Any], encoder: Encoder | None = None, **options: Any) -> tuple[Batches, list[Batch]]:
    """All batches of these items."""
    known: dict[str, Any] = {"max_items": 10_000, "target": Target()}
    made = Batches(iter(items), encoder or Encoder(FixedEnvironment()), **(known | options))
    return made, list(driven(made))


def driven(made: Batches) -> Iterator[Batch]:
    while True:
        flow = made.next_batch()
        try:
            effect = next(flow)
            while True:
                assert isinstance(effect, Take)
                effect = flow.send(list(itertools.islice(effect.source, effect.most)))
        except StopIteration as end:
            if end.value is None:
                return
            yield end.value


def sent(items: Iterable[Any], encoder: Encoder | None = None) -> list[dict[str, Any]]:
    """The items of the one body that is made of these."""
    made, cuts = cut(items, encoder)
    assert len(cuts) == 1
    found: list[dict[str, Any]] = json.loads(made.body(cuts[0].encoded))["items"]
    return found


@given(
    lengths=st.lists(st.integers(0, 60), max_size=60),
    max_items=st.integers(1, 12),
    most_bytes=st.integers(180, 600),
)
def test_items_are_cut_by_count_and_by_bytes(lengths: list[int], max_items: int, most_bytes: int) -> None:
    """Every item is in one body, in order; no body has too many or too much, and none has room for the next item."""
    items = ["x" * length for length in lengths]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "MAX_BODY_BYTES", most_bytes)
        patched.setattr(batches, "_ITEMS_PER_SLICE", 7)
        made, cuts = cut(items, max_items=max_items, target=Target("acme"))
    bodies = [made.body(batch.encoded) for batch in cuts]
    assert [item["address"] for body in bodies for item in json.loads(body)["items"]] == items
    assert [item for batch in cuts for item in batch.items] == items
    assert [index for batch in cuts for index in batch.indexes] == list(range(len(items)))
    for number, batch in enumerate(cuts):
        assert 1 <= len(batch.items) <= max_items
        assert len(bodies[number]) <= most_bytes
        if number + 1 < len(cuts):
            next_item = cuts[number + 1].encoded[0]
            assert len(batch.items) == max_items or len(made.body([*batch.encoded, next_item])) > most_bytes


def test_a_body_that_fits_to_the_byte_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bytes as there may be are one body, and with one byte less to use the last item goes into a second."""
    items = ["x" * length for length in (5, 0, 9)]
    made, (whole,) = cut(items)
    size = len(made.body(whole.encoded))
    counts = []
    for most_bytes in (size, size - 1):
        monkeypatch.setattr(batches, "MAX_BODY_BYTES", most_bytes)
        counts.append([len(batch.items) for batch in cut(items)[1]])
    assert counts == [[3], [2, 1]]


def test_a_body_may_be_as_large_as_the_service_takes_and_no_larger() -> None:
    """With long texts the bytes decide: each body stays within 8 MiB, and the next item would not have fitted."""
    items = [Item(f"p{number}@example.com", source="\N{SNOWMAN}" * 200) for number in range(20_000)]
    made, cuts = cut(items)
    sizes = [len(made.body(batch.encoded)) for batch in cuts]
    assert [len(batch.items) for batch in cuts][:2] == [10_000, 10_000]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "MAX_BODY_BYTES", max(sizes) - 1)
        assert max(len(made.body(batch.encoded)) for batch in cut(items)[1]) < max(sizes)
    assert batches.MAX_BODY_BYTES == 8 * 1024 * 1024


def test_an_item_too_large_for_any_body_is_named() -> None:
    """It is not sent, and what comes before it is."""
    items = [ANN, Item(ANN, source="x" * batches.MAX_BODY_BYTES)]
    made = Batches(iter(items), Encoder(FixedEnvironment()), Target(), max_items=10_000)
    flow = driven(made)
    assert next(flow).items == [ANN]
    with pytest.raises(ConfigurationError, match="Item 1 alone is larger"):
        next(flow)


def test_no_more_is_read_than_is_sent() -> None:
    """The source is read as batches need it: what waits for the service is one batch."""
    source = iter([f"p{number}@example.com" for number in range(5_000)])
    made = Batches(source, Encoder(FixedEnvironment()), Target(), max_items=1_500)
    assert len(next(driven(made)).items) == 1_500
    assert next(source) == "p1500@example.com"


def test_nothing_makes_no_batch() -> None:
    """Of no items there is no request."""
    assert cut([])[1] == []


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (Target(), {}),
        (Target("acme", "grp_1"), {"org_slug": "acme", "group_id": "grp_1"}),
        (Target(None, None, True), {"all_groups": True}),
        (Target('"\\\ud800'), {"org_slug": '"\\\ud800'}),
    ],
)
def test_the_target_stands_beside_the_items(target: Target, fields: dict[str, Any]) -> None:
    """The body has what the target names, and nothing else but the items."""
    made, (batch,) = cut([ANN], target=target)
    body = json.loads(made.body(batch.encoded))
    assert body.pop("items") == [{"address": ANN, "occurred_at": STAMP}]
    assert body == fields


def test_a_plain_address_is_an_act_of_now() -> None:
    """It is stamped with this host's clock, and has nothing else that the service would take by itself."""
    assert sent([ANN, Text(ANN)]) == [{"address": ANN, "occurred_at": STAMP}] * 2


def test_what_an_item_says_wins_over_the_call() -> None:
    """Time, reason and source are those of the item; the call's stand in where it has none."""
    encoder = Encoder(FixedEnvironment(), occurred_at=NOON, reason="import", source="old list")
    own = Item(ANN, "2026-01-01T00:00:00Z", "bounce", "")
    assert sent([ANN, Item(ANN), own], encoder) == [
        {"address": ANN, "occurred_at": "2026-03-01T12:00:00.000Z", "reason": "import", "source": "old list"},
        {"address": ANN, "occurred_at": "2026-03-01T12:00:00.000Z", "reason": "import", "source": "old list"},
        {"address": ANN, "occurred_at": "2026-01-01T00:00:00Z", "reason": "bounce", "source": ""},
    ]


def test_each_slice_is_stamped_when_it_is_read() -> None:
    """Items that are read an hour later happened an hour later."""
    environment = FixedEnvironment()
    encoder = Encoder(environment)
    first = encoder.encoded([ANN], 0)
    environment.now_s = lambda: 1_800_003_600.5  # type: ignore[method-assign]
    second = encoder.encoded([ANN], 1)
    assert [json.loads(item)["occurred_at"] for item in first + second] == [STAMP, "2027-01-15T09:00:00.500Z"]


def test_only_what_the_client_stamped_counts_as_stamped() -> None:
    """Not an item that has a time, nor any item of a call that has one, nor a resubscription."""
    timed = Item(ANN, NOON)
    plain = Encoder(FixedEnvironment())
    assert [plain.stamps(item) for item in (ANN, Item(ANN), timed)] == [True, True, False]
    others = Encoder(FixedEnvironment(), occurred_at=NOON), Encoder(FixedEnvironment(), status="resubscribed")
    assert not any(encoder.stamps(item) for encoder in others for item in (ANN, Item(ANN), timed))


def test_without_stamps_the_time_is_left_out() -> None:
    """The service then takes the act for one of now."""
    assert sent([ANN, Item(ANN)], Encoder(FixedEnvironment(), stamps=False)) == [{"address": ANN}] * 2


def test_a_resubscription_says_so() -> None:
    """Its status and its time stand in each item."""
    encoder = Encoder(FixedEnvironment(), status="resubscribed", occurred_at=NOON)
    expected = {"address": ANN, "occurred_at": "2026-03-01T12:00:00.000Z", "status": "resubscribed"}
    assert sent([ANN, Item(ANN)], encoder) == [expected] * 2


@pytest.mark.parametrize("bad", [ANN, Item(ANN)])
def test_a_resubscription_without_a_time_is_refused(bad: Any) -> None:
    """The client does not invent the moment of a consent; the first item that lacks one is named."""
    encoder = Encoder(FixedEnvironment(), status="resubscribed")
    with pytest.raises(ConfigurationError, match="Item 1 has no occurred_at"):
        sent([Item(ANN, NOON), bad], encoder)


@pytest.mark.parametrize("text", ["a\ud800@example.com", "\udfff", 'a"\\\n\x00@example.com', "ü@exämple.com"])
def test_any_text_can_be_sent(text: str) -> None:
    """What is no Unicode arrives as the escape that it is, for the service to judge; and its neighbours as they are."""
    assert [item["address"] for item in sent([ANN, text, Item(text, source=text)])] == [ANN, text, text]


@pytest.mark.parametrize(
    "bad",
    [None, 5, b"ann@example.com", ("ann@example.com",), {"address": ANN}, Item(None), Item(b"x")],  # type: ignore[arg-type]
)
def test_what_is_no_address_is_named_by_its_place(bad: Any) -> None:
    """Counted over the whole call."""
    with pytest.raises(ConfigurationError, match="Item 1200 has the wrong type"):
        cut([ANN] * 1200 + [bad], max_items=500)


@pytest.mark.parametrize("bad", [Item(ANN, reason=5), Item(ANN, source=b"x")])  # type: ignore[arg-type]
def test_a_reason_or_source_that_is_no_text_is_named(bad: Any) -> None:
    """By the place of its item."""
    with pytest.raises(ConfigurationError, match="item 1 must be text"):
        sent([ANN, bad])


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("2026-03-01T09:30:00+01:00", "2026-03-01T09:30:00+01:00"),
        ("whenever", "whenever"),
        (NOON, "2026-03-01T12:00:00.000Z"),
        (NOON.replace(microsecond=999_999), "2026-03-01T12:00:00.999Z"),
        (NOON.astimezone(timezone(timedelta(hours=-5, minutes=-30, seconds=-7))), "2026-03-01T12:00:00.000Z"),
        (datetime(1, 1, 2, tzinfo=UTC), "0001-01-02T00:00:00.000Z"),
    ],
)
def test_moments_are_written_as_the_service_reads_them(moment: Any, text: str) -> None:
    """In UTC, cut to the millisecond; text is left to the service."""
    assert moment_text(moment, "occurred_at") == text


@pytest.mark.parametrize(
    "moment",
    [
        NOON.replace(tzinfo=None),
        date(2026, 3, 1),
        1_800_000_000,
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_moment_without_a_place_in_time_is_refused(moment: Any) -> None:
    """A datetime without an offset could be hours off; it says for which item."""
    with pytest.raises(ConfigurationError, match="occurred_at of item 1 "):
        sent([ANN, Item(ANN, moment)])
