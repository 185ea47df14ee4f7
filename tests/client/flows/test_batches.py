"""Division of items into request bodies. Source: docs/interface.md section D6 (POST)."""

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

from tests.client.flow_runner import FixedEnvironment

pytestmark = pytest.mark.interpreter

STAMP = "2027-01-15T08:00:00.000Z"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = "ann@example.com"


class Text(str):
    """A subclass of str, as some libraries define."""

    __slots__ = ()


def batches_of(items: Iterable[Any], encoder: Encoder | None = None, **options: Any) -> tuple[Batches, list[Batch]]:
    """Return all batches of these items."""
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


def only_items_of(items: Iterable[Any], encoder: Encoder | None = None) -> list[dict[str, Any]]:
    """Return the items of the single body that these items make."""
    made, cuts = batches_of(items, encoder)
    assert len(cuts) == 1
    found: list[dict[str, Any]] = json.loads(made.body(cuts[0].encoded))["items"]
    return found


@given(
    lengths=st.lists(st.integers(0, 60), max_size=60),
    max_items=st.integers(1, 12),
    most_bytes=st.integers(180, 600),
)
def test_items_are_divided_by_count_and_bytes(lengths: list[int], max_items: int, most_bytes: int) -> None:
    """Every item is in one body, in order; no body is too large, and none has room for the next item."""
    items = ["x" * length for length in lengths]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "MAX_BODY_BYTES", most_bytes)
        patched.setattr(batches, "_ITEMS_PER_SLICE", 7)
        made, cuts = batches_of(items, max_items=max_items, target=Target("acme"))
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


def test_body_may_have_exactly_the_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of one byte less puts the last item into a second body."""
    items = ["x" * length for length in (5, 0, 9)]
    made, (whole,) = batches_of(items)
    size = len(made.body(whole.encoded))
    counts = []
    for most_bytes in (size, size - 1):
        monkeypatch.setattr(batches, "MAX_BODY_BYTES", most_bytes)
        counts.append([len(batch.items) for batch in batches_of(items)[1]])
    assert counts == [[3], [2, 1]]


def test_bodies_stay_within_8_mib() -> None:
    """The bytes of long texts decide, and the next item would not have fitted."""
    items = [Item(f"p{number}@example.com", source="\N{SNOWMAN}" * 200) for number in range(20_000)]
    made, cuts = batches_of(items)
    sizes = [len(made.body(batch.encoded)) for batch in cuts]
    assert [len(batch.items) for batch in cuts][:2] == [10_000, 10_000]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "MAX_BODY_BYTES", max(sizes) - 1)
        assert max(len(made.body(batch.encoded)) for batch in batches_of(items)[1]) < max(sizes)
    assert batches.MAX_BODY_BYTES == 8 * 1024 * 1024


def test_too_large_item_is_named() -> None:
    """It is not sent, but the items before it are."""
    items = [ANN, Item(ANN, source="x" * batches.MAX_BODY_BYTES)]
    made = Batches(iter(items), Encoder(FixedEnvironment()), Target(), max_items=10_000)
    flow = driven(made)
    assert next(flow).items == [ANN]
    with pytest.raises(ConfigurationError, match="Item 1 alone is larger"):
        next(flow)


def test_items_are_read_batch_by_batch() -> None:
    source = iter([f"p{number}@example.com" for number in range(5_000)])
    made = Batches(source, Encoder(FixedEnvironment()), Target(), max_items=1_500)
    assert len(next(driven(made)).items) == 1_500
    assert next(source) == "p1500@example.com"


def test_no_items_make_no_batch() -> None:
    assert batches_of([])[1] == []


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (Target(), {}),
        (Target("acme", "grp_1"), {"org_slug": "acme", "group_id": "grp_1"}),
        (Target(None, None, True), {"all_groups": True}),
        (Target('"\\\ud800'), {"org_slug": '"\\\ud800'}),
    ],
)
def test_body_has_target_and_items_only(target: Target, fields: dict[str, Any]) -> None:
    made, (batch,) = batches_of([ANN], target=target)
    body = json.loads(made.body(batch.encoded))
    assert body.pop("items") == [{"address": ANN, "occurred_at": STAMP}]
    assert body == fields


def test_plain_address_is_stamped_with_now() -> None:
    """It has no other field that the service fills by default."""
    assert only_items_of([ANN, Text(ANN)]) == [{"address": ANN, "occurred_at": STAMP}] * 2


def test_fields_of_an_item_override_the_call() -> None:
    encoder = Encoder(FixedEnvironment(), occurred_at=NOON, reason="import", source="old list")
    own = Item(ANN, "2026-01-01T00:00:00Z", "bounce", "")
    assert only_items_of([ANN, Item(ANN), own], encoder) == [
        {"address": ANN, "occurred_at": "2026-03-01T12:00:00.000Z", "reason": "import", "source": "old list"},
        {"address": ANN, "occurred_at": "2026-03-01T12:00:00.000Z", "reason": "import", "source": "old list"},
        {"address": ANN, "occurred_at": "2026-01-01T00:00:00Z", "reason": "bounce", "source": ""},
    ]


def test_each_slice_is_stamped_when_it_is_read() -> None:
    """Items that are read an hour later get a time an hour later."""
    environment = FixedEnvironment()
    encoder = Encoder(environment)
    first = encoder.encoded([ANN], 0)
    environment.now_s = lambda: 1_800_003_600.5  # type: ignore[method-assign]
    second = encoder.encoded([ANN], 1)
    assert [json.loads(item)["occurred_at"] for item in first + second] == [STAMP, "2027-01-15T09:00:00.500Z"]


def test_only_stamped_items_count_as_stamped() -> None:
    """An item with a time does not, nor does any item of a call with one, nor a resubscription."""
    timed = Item(ANN, NOON)
    plain = Encoder(FixedEnvironment())
    assert [plain.stamps(item) for item in (ANN, Item(ANN), timed)] == [True, True, False]
    others = Encoder(FixedEnvironment(), occurred_at=NOON), Encoder(FixedEnvironment(), status="resubscribed")
    assert not any(encoder.stamps(item) for encoder in others for item in (ANN, Item(ANN), timed))


def test_without_stamps_the_time_is_omitted() -> None:
    """The service then counts the act as of now."""
    assert only_items_of([ANN, Item(ANN)], Encoder(FixedEnvironment(), stamps=False)) == [{"address": ANN}] * 2


def test_resubscription_has_status_and_time() -> None:
    encoder = Encoder(FixedEnvironment(), status="resubscribed", occurred_at=NOON)
    expected = {"address": ANN, "occurred_at": "2026-03-01T12:00:00.000Z", "status": "resubscribed"}
    assert only_items_of([ANN, Item(ANN)], encoder) == [expected] * 2


@pytest.mark.parametrize("bad", [ANN, Item(ANN)])
def test_resubscription_without_a_time_is_refused(bad: Any) -> None:
    """The first item without a time is named."""
    encoder = Encoder(FixedEnvironment(), status="resubscribed")
    with pytest.raises(ConfigurationError, match="Item 1 has no occurred_at"):
        only_items_of([Item(ANN, NOON), bad], encoder)


@pytest.mark.parametrize("text", ["a\ud800@example.com", "\udfff", 'a"\\\n\x00@example.com', "ü@exämple.com"])
def test_any_text_can_be_sent(text: str) -> None:
    """A lone surrogate is sent as an escape, for the service to refuse, and does not affect other items."""
    assert [item["address"] for item in only_items_of([ANN, text, Item(text, source=text)])] == [ANN, text, text]


@pytest.mark.parametrize(
    "bad",
    [None, 5, b"ann@example.com", ("ann@example.com",), {"address": ANN}, Item(None), Item(b"x")],  # type: ignore[arg-type]
)
def test_item_of_wrong_type_is_named_by_index(bad: Any) -> None:
    """Counted over the whole call."""
    with pytest.raises(ConfigurationError, match="Item 1200 has the wrong type"):
        batches_of([ANN] * 1200 + [bad], max_items=500)


@pytest.mark.parametrize("bad", [Item(ANN, reason=5), Item(ANN, source=b"x")])  # type: ignore[arg-type]
def test_reason_or_source_of_wrong_type_is_named(bad: Any) -> None:
    """The error names the index of its item."""
    with pytest.raises(ConfigurationError, match="item 1 must be text"):
        only_items_of([ANN, bad])


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
def test_datetimes_are_sent_in_utc_milliseconds(moment: Any, text: str) -> None:
    """Text is sent unchanged."""
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
def test_datetime_without_offset_is_refused(moment: Any) -> None:
    """It could be wrong by hours; the message names the item."""
    with pytest.raises(ConfigurationError, match="occurred_at of item 1 "):
        only_items_of([ANN, Item(ANN, moment)])
