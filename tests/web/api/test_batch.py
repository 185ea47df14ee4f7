"""The body of a submission: its content, size and coding, and the errors of bad items.

Source: docs/interface.md sections D4 and D6. The order of refusals is tested in test_refusals.py.
"""

import asyncio
import gzip
import itertools
import json
import re
import zlib
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.errors import BadRequest
from stoplist.slicing import Work
from stoplist.web.api import batch
from stoplist.web.api.coding import decompress_gzip
from tests.constants import MIB
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.unsubscribes.partner import back, out
from tests.web.api.partner import GZIP, JSON, NOTHING, ApiPartner, gzipped, refusal, text_of
from tests.web.application import Answer, Application

pytestmark = pytest.mark.interpreter

ANN = "ann@x.org"
LENIENT = "handling=lenient"


def counts(answer: Answer) -> tuple[int, ...]:
    """Return the counts: received, created, updated, unchanged, outranked."""
    assert answer.status == 200, answer.body
    body = answer.json()
    return tuple(body[name] for name in ("received", "created", "updated", "unchanged", "outranked"))


def raw(*items: str, **fields: str) -> bytes:
    """Return a body of items and fields that are JSON texts already."""
    named = "".join(f'"{name}": {text}, ' for name, text in fields.items())
    return f'{{{named}"items": [{", ".join(items)}]}}'.encode("utf-8", "surrogatepass")


def check_bad_request(partner: ApiPartner, answer: Answer, text: str, parameter: str | None = None) -> None:
    """Check a refusal of the whole batch; nothing is stored."""
    extra = {} if parameter is None else {"parameter": parameter}
    assert (answer.status, refusal(answer)) == (400, {"error": "bad_request", **extra}), answer.body
    assert text in text_of(answer)
    assert partner.stored() == NOTHING


# A good batch


def test_the_answer_to_a_batch_has_every_field(partner: ApiPartner) -> None:
    """Source: docs/interface.md section D6; one item for each possible result."""
    partner.submit(out("b@x.org", partner.ago(50)), out("c@x.org", partner.ago(50)))
    items = [
        out(" A@X.org "),
        back("b@x.org", partner.ago(40)),
        out("c@x.org", partner.ago(50)),
        back("c@x.org", partner.ago(60)),
    ]
    answer = partner.submit(*items, org_slug=partner.slug, group_id=partner.group_id)
    assert answer.header("content-type") == "application/json"
    assert answer.header("cache-control") == "no-store"
    body = answer.json()
    assert re.fullmatch("sub_[0-9A-Za-z]{22}", body.pop("submission_id"))
    record_ids = [item.pop("id") for item in body["items"]]
    assert all(re.fullmatch("uns_[0-9A-Za-z]{22}", record_id) for record_id in record_ids)
    assert (len(set(record_ids)), record_ids[2]) == (3, record_ids[3])
    latest = partner.ago(50).replace("+00:00", "Z")
    assert body == {
        "org_slug": partner.slug,
        "group_id": partner.group_id,
        "received": 4,
        "created": 1,
        "updated": 1,
        "unchanged": 1,
        "outranked": 1,
        "items": [
            {"item_index": 0, "address": "a@x.org", "result": "created", "status": "unsubscribed"},
            {"item_index": 1, "address": "b@x.org", "result": "updated", "status": "resubscribed"},
            {"item_index": 2, "address": "c@x.org", "result": "unchanged", "status": "unsubscribed"},
            {
                "item_index": 3, "address": "c@x.org", "result": "outranked", "status": "unsubscribed",
                "latest_act_at": latest,
            },
        ],
    }  # fmt: skip


@pytest.mark.parametrize("channel", ["sms", "phone"])
def test_the_other_channels_have_the_same_shape(partner: ApiPartner, channel: str) -> None:
    """Only the rule for addresses differs, and each channel has its own feed."""
    answer = partner.submit(out("+44 (0)20 7946 0018"), channel=channel)
    assert answer.json()["items"][0]["address"] == "+442079460018"
    refused = partner.submit(out(ANN), channel=channel)
    assert refusal(refused)["error"] == "invalid_item"
    assert [len(partner.stored(c)["unsubscribes"]) for c in ("email", channel)] == [0, 1]


@pytest.mark.parametrize(
    ("named", "is_default"),
    [
        ({}, True),
        ({"group_id": None, "org_slug": None, "all_groups": None}, True),
        ({"all_groups": False}, True),
        ({"all_groups": True}, False),
        ({"all_groups": True, "group_id": None}, False),
    ],
)
def test_null_and_false_are_the_same_as_absent(partner: ApiPartner, named: dict[str, Any], *, is_default: bool) -> None:
    """`all_groups: false` may even be sent with a group."""
    assert partner.submit(out(ANN), **named).json()["group_id"] == (partner.group_id if is_default else None)
    if is_default:
        assert counts(partner.submit(out(ANN), **{**named, "group_id": partner.group_id})) == (1, 0, 0, 1, 0)


def test_a_batch_that_stores_nothing_has_no_submission_id(partner: ApiPartner) -> None:
    batch = [out(ANN, partner.ago(5)), back("bob@x.org", partner.ago(5))]
    first, again = partner.submit(*batch).json(), partner.submit(*batch).json()
    assert (first["submission_id"] is None, again["submission_id"]) == (False, None)
    assert [item["id"] for item in first["items"]] == [item["id"] for item in again["items"]]


# Items


BAD_ITEMS: dict[str, tuple[str, str]] = {
    "a number": ("5", "must be an object"),
    "null": ("null", "must be an object"),
    "text": ('"ann@x.org"', "must be an object"),
    "a list": ('["ann@x.org"]', "must be an object"),
    "nothing": ("{}", "address is missing"),
    "null for an address": ('{"address": null}', "address is missing"),
    "a number for an address": ('{"address": 5}', "address must be text"),
    "an object for an address": ('{"address": {"address": "ann@x.org"}}', "address must be text"),
    "an unknown field": ('{"address": "ann@x.org", "adress": "x"}', "Unknown field adress: an item takes address"),
    "an unknown field that may be secret": ('{"address": "ann@x.org", "bob@x.org": 1}', "Unknown field: an item"),
    "an unknown field of 41 characters": (f'{{"address": "ann@x.org", "{"x" * 41}": 1}}', "Unknown field: an item"),
    "an unknown status": ('{"address": "ann@x.org", "status": "gone"}', "status must be one of unsubscribed, resub"),
    "a status in capitals": ('{"address": "ann@x.org", "status": "Unsubscribed"}', "status must be one of"),
    "a status that is true": ('{"address": "ann@x.org", "status": true}', "status must be text"),
    "an unknown reason": ('{"address": "ann@x.org", "reason": "spam"}', "reason must be one of unsubscribe, stop_"),
    "a reason that nobody sends": ('{"address": "ann@x.org", "reason": "correction"}', "reason must be one of"),
    "a number for a time": ('{"address": "ann@x.org", "occurred_at": 1772357400}', "occurred_at must be text"),
    "a list for a source": ('{"address": "ann@x.org", "source": []}', "source must be text"),
    "a source of 201 characters": (f'{{"address": "ann@x.org", "source": "{"x" * 201}"}}', "longer than 200 char"),
    "a huge number": (f'{{"address": {"9" * 6000}}}', "address must be text"),
    "a huge exponent": ('{"address": 1e999999999}', "address must be text"),
    "half of a pair": (r'{"address": "ann\ud83d@x.org"}', "half of a surrogate pair"),
    "the other half": (r'{"address": "ann@x.org", "source": "\udE00"}', "half of a surrogate pair"),
    "halves the wrong way round": (r'{"address": "ann@x.org", "source": "\ude00\ud83d"}', "half of a surrogate pair"),
    "half of a pair in a name": (r'{"address": "ann@x.org", "\ud83d": 1}', "Unknown field: an item takes"),
    "a NUL": (r'{"address": "ann\u0000@x.org"}', "not allowed"),
    "a NUL in a source": (r'{"address": "ann@x.org", "source": "\u0000"}', "NUL"),
    "a NUL in a name": (r'{"address": "ann@x.org", "\u0000": "x"}', "Unknown field: an item takes"),
    "deep nesting": ('{"address": ' + "[" * 200 + "]" * 200 + "}", "address must be text"),
    "an old status that is right": ('{"address": "ann@x.org", "status": "resubscribed", "status": 5}', "status must"),
}


@pytest.mark.parametrize(("item", "text"), BAD_ITEMS.values(), ids=BAD_ITEMS)
def test_a_bad_item_is_reported_with_what_would_be_right(partner_on_sqlite: ApiPartner, item: str, text: str) -> None:
    """Its index is reported; nothing of the batch is stored, and no possible address is repeated."""
    answer = partner_on_sqlite.post(raw('{"address": "good@x.org"}', item, '{"address": "fine@x.org"}'))
    body = refusal(answer)
    (error,) = body["item_errors"]
    assert (answer.status, body) == (400, {"error": "invalid_item", **error, "item_errors": [error]})
    assert error["item_index"] == 1
    assert text in error["item_error"]
    assert all(word not in answer.body.decode() for word in ("ann@", "bob", "x.org", "9" * 20))
    assert partner_on_sqlite.stored() == NOTHING


def test_every_bad_item_is_listed(partner: ApiPartner) -> None:
    """The list has every kind, in the order of the items; the first is repeated beside the list."""
    items = [text for text, _ in BAD_ITEMS.values()]
    good = '{"address": "good@x.org"}'
    answer = partner.post(raw(good, *(text for item in items for text in (item, good))))
    body = refusal(answer)
    errors = body.pop("item_errors")
    assert [error["item_index"] for error in errors] == list(range(1, 2 * len(items), 2))
    texts = [text for _, text in BAD_ITEMS.values()]
    assert [text for text, error in zip(texts, errors, strict=True) if text not in error["item_error"]] == []
    assert body == {"error": "invalid_item", **errors[0]}
    assert f"{len(items)} of {2 * len(items) + 1} items" in text_of(answer)
    assert partner.stored() == NOTHING


def test_a_lenient_batch_stores_the_good_items(partner: ApiPartner) -> None:
    """It returns the same errors beside the counts; `received` counts all items."""
    items = [text for text, _ in BAD_ITEMS.values()]
    body = raw('{"address": "a@x.org"}', *items, '{"address": "b@x.org"}')
    strict = refusal(partner.post(body))
    answer = partner.post(body, ("prefer", LENIENT))
    assert counts(answer) == (len(items) + 2, 2, 0, 0, 0)
    assert answer.json()["item_errors"] == strict["item_errors"]
    assert [item["item_index"] for item in answer.json()["items"]] == [0, len(items) + 1]
    assert [record["address"] for record in partner.feed()] == ["a@x.org", "b@x.org"]


def test_a_lenient_batch_always_has_item_errors(partner: ApiPartner) -> None:
    """An empty list without errors; without a good item, a 200 that stored nothing."""
    body = partner.submit(out("nobody"), prefer=LENIENT).json()
    assert (body["submission_id"], body["received"], body["items"]) == (None, 1, [])
    assert [error["item_index"] for error in body["item_errors"]] == [0]
    assert partner.stored() == NOTHING
    assert partner.submit(out(ANN), prefer=LENIENT).json()["item_errors"] == []
    assert "item_errors" not in partner.submit(out(ANN)).json()


GOOD_ITEMS = {
    "a pair of surrogates": (r'{"address": "ann@x.org", "source": "\ud83d\ude00"}', "\N{GRINNING FACE}"),
    "200 characters beyond the BMP": (json.dumps({"address": ANN, "source": "\U0001f4e8" * 200}), "\U0001f4e8" * 200),
    "escapes": (r'{"\u0061ddress": "ann\u0040x.org", "source": "\"\\\/\b\f\n\r\t"}', '"\\/' + 5 * " "),
    "a repeated key": ('{"source": "first", "address": "ann@x.org", "source": "last"}', "last"),
    "a repeated key that was wrong": ('{"source": 5, "address": [], "source": "last", "address": "ann@x.org"}', "last"),
    "a repeated key, of no known value": ('{"status": "x", "address": "ann@x.org", "status": "unsubscribed"}', None),
    "null": ('{"address": "ann@x.org", "status": null, "source": null, "reason": null, "occurred_at": null}', None),
}


@pytest.mark.parametrize(("item", "source"), GOOD_ITEMS.values(), ids=GOOD_ITEMS)
@pytest.mark.parametrize("is_beside_half_a_pair", [False, True])
def test_an_item_is_read_as_json_defines(
    partner: ApiPartner, item: str, source: str | None, *, is_beside_half_a_pair: bool
) -> None:
    """The last of duplicate keys counts, and other items make no difference."""
    others = [r'{"address": "\ud800"}'] if is_beside_half_a_pair else []
    assert counts(partner.post(raw(item, *others), ("prefer", LENIENT))) == (1 + len(others), 1, 0, 0, 0)
    (record,) = partner.feed()
    assert (record["address"], record["status"], record["source"]) == (ANN, "unsubscribed", source)


# Outside the items


GOOD = '{"address": "ann@x.org"}'
BAD_BODIES: dict[str, tuple[bytes, str, str | None]] = {
    "nothing": (b"", "not JSON", None),
    "white space": (b" \n", "not JSON", None),
    "a number": (b"5", "must be an object that holds the items", None),
    "null": (b"null", "must be an object that holds the items", None),
    "a list": (f"[{GOOD}]".encode(), "must be an object that holds the items", None),
    "an end too early": (raw(GOOD)[:-1], "not JSON", None),
    "something behind it": (raw(GOOD) + b"{}", "not JSON", None),
    "a comma too many": (b'{"items": [{"address": "ann@x.org"},]}', "not JSON", None),
    "single quotes": (b"{'items': []}", "not JSON", None),
    "a comment": (raw(GOOD) + b"// all", "not JSON", None),
    "a bare word": (raw("NaN"), "not JSON", None),
    "a bare word beside half a pair": (raw(r'"\ud800"', "Infinity"), "not JSON", None),
    "a control character": (raw('{"address": "a\tb"}'), "not JSON", None),
    "UTF-16": (raw(GOOD).decode().encode("utf-16"), "not JSON", None),
    "a byte order mark": (b"\xef\xbb\xbf" + raw(GOOD), "not JSON", None),
    "Latin-1": (raw('{"address": "andr\u00e9@x.org"}').decode().encode("latin-1"), "not JSON", None),
    "a surrogate as bytes": (raw('{"address": "\ud800"}'), "not JSON", None),
    "a form": (b"items=ann", "not JSON", None),
    "deep lists": (b"[" * 12_000, "must be an object that holds the items", None),
    "deep objects": (b'{"items": ' * 12_000, "nested too deeply", None),
    "a deep item": (raw("[" * 12_000 + "]" * 12_000), "nested too deeply", None),
    "a deep item beside half a pair": (raw(r'"\ud800"', "[" * 25_000 + "]" * 25_000), "nested too deeply", None),
    "a deep slug": (raw(GOOD, org_slug="[" * 12_000 + "]" * 12_000), "nested too deeply", None),
    "no items": (b"{}", "items must be a list of 1 to 10000 objects", "items"),
    "items that are null": (b'{"items": null}', "items must be a list of 1 to 10000 objects", "items"),
    "items that are an object": (b'{"items": {"address": "ann@x.org"}}', "items must be a list", "items"),
    "items that are text": (rb'{"items": "\ud800"}', "items must be a list", "items"),
    "an empty batch": (b'{"items": []}', "there are 0", "items"),
    "an empty batch at last": (raw(GOOD)[:-1] + b', "items": []}', "there are 0", "items"),
    "an unknown field": (raw(GOOD, groupid='"x"'), "takes org_slug, group_id, all_groups, items", "groupid"),
    "an unknown field of another shape": (raw(GOOD, **{"ann@x.org": "1"}), "unknown field", None),
    "an unknown field of 41 characters": (raw(GOOD, **{"x" * 41: "1"}), "unknown field", None),
    "an unknown field of half a pair": (raw(GOOD, **{r"\ud800": "1"}), "unknown field", None),
    "a huge number for a slug": (raw(GOOD, org_slug="9" * 6_000), "org_slug must be text", "org_slug"),
    "a huge exponent for a slug": (raw(GOOD, org_slug="1e999999999"), "org_slug must be text", "org_slug"),
    "half a pair in a slug": (raw(GOOD, org_slug=r'"\udfff"'), "org_slug must be text", "org_slug"),
    "half a pair in a group": (raw(GOOD, group_id=r'"grp_\ud800"'), "group_id must be text", "group_id"),
    "half a pair for all groups": (raw(GOOD, all_groups=r'"\ud800"'), "all_groups must be true", "all_groups"),
    "a NUL in a slug": (raw(GOOD, org_slug=r'"\u0000"'), "NUL", "org_slug"),
    "a NUL in a group beside a bad item": (raw("5", group_id=r'"\u0000"'), "NUL", "group_id"),
    "an object for all groups": (raw(GOOD, all_groups="{}"), "all_groups must be true", "all_groups"),
    "a list for a group": (raw(GOOD, group_id="[]"), "group_id must be text", "group_id"),
    "both kinds of group": (raw(GOOD, group_id='"x"', all_groups="true"), "not both", "all_groups"),
}


@pytest.mark.parametrize(("body", "text", "parameter"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_fault_outside_the_items_is_a_bad_request(
    partner_on_sqlite: ApiPartner, body: bytes, text: str, parameter: str | None
) -> None:
    """The text says what would be right; leniency does not help, and no input is repeated."""
    for headers in ([], [("prefer", LENIENT)]):
        answer = partner_on_sqlite.post(body, *headers)
        check_bad_request(partner_on_sqlite, answer, text, parameter)
        assert "ann@" not in answer.body.decode()


def test_nesting_of_any_depth_is_refused(partner_on_sqlite: ApiPartner) -> None:
    """It is a bad item while it can be read, else a bad request; at no depth is it a defect."""

    def code(depth: int) -> str:
        answer = partner_on_sqlite.post(raw('{"address": ' + "[" * depth + "]" * depth + "}"))
        assert answer.status == 400, (depth, answer.body)
        return str(answer.error)

    readable, too_deep = 1, 100_000
    while too_deep - readable > 1:
        depth = (readable + too_deep) // 2
        readable, too_deep = (depth, too_deep) if code(depth) == "invalid_item" else (readable, depth)
    assert {code(depth) for depth in range(readable - 10, too_deep + 10)} == {"invalid_item", "bad_request"}


def test_of_a_repeated_field_the_last_counts(partner: ApiPartner) -> None:
    body = f'{{"items": 5, "org_slug": {{}}, "items": [{GOOD}], "org_slug": "nowhere", "org_slug": null}}'
    assert counts(partner.post(body.encode())) == (1, 1, 0, 0, 0)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\ud800", "a\0", ANN]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["address", "status", "items", "source", "\ud800"]) | st.text(), inner, max_size=4
        )
    ),
    max_leaves=8,
)
ALMOST = st.fixed_dictionaries(
    {"items": st.lists(JSON_VALUES, max_size=3) | JSON_VALUES},
    optional={"org_slug": JSON_VALUES, "group_id": JSON_VALUES, "all_groups": JSON_VALUES},
)


def test_any_body_is_answered(shared_database: SharedDatabase) -> None:
    """Any bytes, any JSON, and almost valid bodies: refused or accepted, and never a 500."""
    clock = FakeClock()
    run, database = shared_database
    partner = ApiPartner.new(Application(run, database, clock), clock)

    @given(st.binary() | (JSON_VALUES | ALMOST).map(lambda value: json.dumps(value).encode()))
    def any_body(body: bytes) -> None:
        fresh = partner.at(Application(run, database, clock))  # with a new limiter
        for headers in ([], [("prefer", LENIENT)]):
            answer = fresh.post(body, *headers)
            assert answer.status in (200, 400, 403), answer.body

    any_body()


# Size


ITEM_TEXTS = st.sampled_from(
    [
        '{"address":"ann@x.org"}',
        '{"address":"ann@x.org","status":"resubscribed","occurred_at":"2026-03-01T09:30:00Z","reason":"consent"}',
        '{"address":"a","address":"b","source":null}',
        '{ "address" : "\\ud83d\\ude00" }',
        '{"address":"\\ud83d"}',
        '{"address":1}',
        '{"address":"a","status":"gone"}',
        '{"address":"a","source":"%s"}' % ("x" * 201),
        '{"address":"a","extra":[[1]]}',
        '{"extra":NaN}',
        "1",
        "null",
        "[]",
    ]
)


@given(st.lists(ITEM_TEXTS, min_size=1, max_size=4), st.sampled_from([",", ", ", " ,"]))
def test_items_read_at_once_are_those_read_one_by_one(items: list[str], comma: str) -> None:
    """The one decoding call takes all good items; each item of any other batch is read by itself."""
    body = f'{{"items":[{comma.join(items)}]}}'.encode()
    at_once = _read(body)
    with mock.patch.object(batch, "_GOOD_ITEMS", msgspec.json.Decoder(None)):
        assert at_once == _read(body)


def _read(body: bytes) -> object:
    try:
        return asyncio.run(batch.read_batch(body, Work()))
    except BadRequest as refusal:
        return refusal.text


def test_ten_thousand_items_are_accepted_and_one_more_is_not(partner: ApiPartner) -> None:
    """The text says how many there were. A hundred bad ones among them are all listed."""
    good = [GOOD] * 9_999
    check_bad_request(partner, partner.post(raw(*good, GOOD, GOOD)), "there are 10001", "items")
    bad = partner.post(raw(*good[:-99], *["{}"] * 100))
    assert len(refusal(bad)["item_errors"]) == 100
    answer = partner.post(raw(*good, '{"address": "bob@x.org"}'))
    assert counts(answer) == (10_000, 2, 0, 9_998, 0)
    assert [item["item_index"] for item in answer.json()["items"]] == list(range(10_000))
    assert json.loads(answer.body).keys() >= {"submission_id", "items", "org_slug"}


@pytest.mark.parametrize("is_gzipped", [False, True])
def test_eight_mib_are_accepted_and_one_byte_more_is_not(partner: ApiPartner, *, is_gzipped: bool) -> None:
    """Counted after decompression, however small the body arrives."""
    most = raw(GOOD).ljust(8 * MIB)
    headers = [GZIP] if is_gzipped else []
    for body, text in ((most + b" ", "larger than 8 MiB"), (most * 2, "larger than 8 MiB")):
        check_bad_request(partner, partner.post(gzipped(body) if is_gzipped else body, *headers), text)
    assert counts(partner.post(gzipped(most) if is_gzipped else most, *headers)) == (1, 1, 0, 0, 0)


def test_an_announced_size_is_refused_before_the_body(partner_on_sqlite: ApiPartner) -> None:
    """The announced size of a gzip body is its compressed size."""
    for headers in ([], [GZIP]):
        answer = partner_on_sqlite.post(raw(GOOD), ("content-length", str(8 * MIB + 1)), *headers)
        check_bad_request(partner_on_sqlite, answer, "larger than 8 MiB")


@pytest.mark.parametrize(
    "body",
    [
        b'{"items":[' + b"0," * 100_001 + b"0]}",
        b'{"items":[{' + b",".join(b'"%d":"\\ud800"' % number for number in range(100_002)) + b"}]}",
        b"{" + b",".join(b'"%d":0' % number for number in range(250_000)) + b"}",
        b'{"org_slug":"\\ud800","items":[' + b'"\\"",' * 250_000 + b"0]}",
        b'{"org_slug":"\\ud800","items":[' + b"[[{}]]," * 11_000 + b"0]}",
    ],
    ids=["items", "fields of an item", "fields", "texts of a quotation mark each", "levels beside half a pair"],
)
def test_more_values_than_any_batch_has_are_not_parsed(partner_on_sqlite: ApiPartner, body: bytes) -> None:
    """A body of 8 MiB can hold four million values, and parsing blocks the event loop."""
    check_bad_request(partner_on_sqlite, partner_on_sqlite.post(body), "far more values than 10000 items have")


def test_a_huge_unreadable_item_is_refused_unparsed(partner_on_sqlite: ApiPartner) -> None:
    """No item needs 64 KiB; the other items are judged as usual."""
    answer = partner_on_sqlite.post(raw(GOOD, f'{{"address": ["{"x" * 65_536}"]}}', '{"address": []}'))
    errors = [(error["item_index"], error["item_error"][:24]) for error in refusal(answer)["item_errors"]]
    assert errors == [(1, "The item cannot be read:"), (2, "address must be text.")]


def test_separators_inside_texts_do_not_count(partner_on_sqlite: ApiPartner) -> None:
    """The texts have commas and escaped quotation marks."""
    sources = [*["," * 199] * 600, '",' * 60]
    items = [{"address": f"{number}@x.org", "source": source} for number, source in enumerate(sources)]
    assert counts(partner_on_sqlite.submit(*items)) == (601, 601, 0, 0, 0)


@pytest.mark.parametrize("end", [b"", b"\\"], ids=["open", "open, at a backslash"])
def test_an_unclosed_text_is_scanned_once(partner_on_sqlite: ApiPartner, end: bytes) -> None:
    """Once for each of its quotation marks would take hours."""
    answer = partner_on_sqlite.post(b'{"items": ["' + b'\\",' * 1_000_000 + end)
    check_bad_request(partner_on_sqlite, answer, "The body is not JSON")


# Content coding


@pytest.mark.parametrize("coding", ["gzip", "GZip", "x-gzip", " gzip "])
def test_a_body_may_be_gzipped(partner_on_sqlite: ApiPartner, coding: str) -> None:
    """RFC 9110 section 8.4.1: in any case, and under its old name."""
    assert counts(partner_on_sqlite.post(gzipped(raw(GOOD)), ("content-encoding", coding))) == (1, 1, 0, 0, 0)


@pytest.mark.parametrize("coding", ["identity", "", "Identity"])
def test_a_body_with_the_identity_coding_is_read_as_is(partner_on_sqlite: ApiPartner, coding: str) -> None:
    """It is not decompressed even if it could be."""
    header = ("content-encoding", coding)
    check_bad_request(partner_on_sqlite, partner_on_sqlite.post(gzipped(raw(GOOD)), header), "not JSON")
    assert counts(partner_on_sqlite.post(raw(GOOD), header)) == (1, 1, 0, 0, 0)


@pytest.mark.parametrize(
    "codings", [["br"], ["zstd"], ["deflate"], ["gzip, gzip"], ["gzip", "gzip"], ["identity, gzip"], ["*"], [b"\xff"]]
)
def test_any_other_coding_is_refused(partner_on_sqlite: ApiPartner, codings: list[str | bytes]) -> None:
    """The text names the supported one; two codings are refused too."""
    answer = partner_on_sqlite.post(gzipped(raw(GOOD)), *(("content-encoding", coding) for coding in codings))
    check_bad_request(partner_on_sqlite, answer, "The Content-Encoding must be gzip")


def test_a_gzip_body_may_have_several_members(partner_on_sqlite: ApiPartner) -> None:
    """RFC 1952 section 2.2: one after the other, as some programs write them."""
    body = raw(GOOD)
    members = b"".join(gzipped(body[at : at + 1]) for at in range(len(body)))
    assert counts(partner_on_sqlite.post(members + gzipped(b""), GZIP)) == (1, 1, 0, 0, 0)
    header_of_all_fields = gzip.compress(b"")[:3] + b"\x1e" + b"\0" * 6 + b"\x02\0ab" + b"name\0" + b"comment\0"
    checked = header_of_all_fields + (zlib.crc32(header_of_all_fields) & 0xFFFF).to_bytes(2, "little")
    with_fields = checked + gzipped(body)[10:]
    assert counts(partner_on_sqlite.post(with_fields, GZIP)) == (1, 0, 0, 1, 0)


WHOLE = gzipped(raw(GOOD))
INVALID_GZIP = {
    "nothing": b"",
    "JSON": raw(GOOD),
    "a head alone": WHOLE[:10],
    "half of it": WHOLE[: len(WHOLE) // 2],
    "all but the last byte": WHOLE[:-1],
    "no length": WHOLE[:-4],
    "another checksum": WHOLE[:-8] + b"\0" * 4 + WHOLE[-4:],
    "another length": WHOLE[:-4] + b"\xff" * 4,
    "something behind it": WHOLE + b"x",
    "zeros behind it": WHOLE + b"\0" * 512,
    "half a member behind it": WHOLE + WHOLE[:-1],
    "zlib": zlib.compress(raw(GOOD)),
    "bare deflate": zlib.compress(raw(GOOD), wbits=-15),
    "another method": WHOLE[:2] + b"\x07" + WHOLE[3:],
    "a broken block": WHOLE[:10] + b"\xff" * 20,
}


@pytest.mark.parametrize("body", INVALID_GZIP.values(), ids=INVALID_GZIP)
def test_an_incomplete_gzip_body_is_refused(partner_on_sqlite: ApiPartner, body: bytes) -> None:
    """All of the JSON may be there: a truncated or altered body is not trusted."""
    check_bad_request(partner_on_sqlite, partner_on_sqlite.post(body, GZIP), "not a whole gzip file")


@pytest.mark.parametrize("members", [1, 2])
def test_a_gzip_bomb_is_refused_at_eight_mib(partner_on_sqlite: ApiPartner, members: int) -> None:
    """It may have one member or several, however small the body is."""
    bomb = gzipped(bytes(64 * MIB)) if members == 1 else gzipped(bytes(8 * MIB)) * 8
    assert len(bomb) < 70_000
    check_bad_request(partner_on_sqlite, partner_on_sqlite.post(bomb, GZIP), "larger than 8 MiB when it is unpacked")
    check_bad_request(partner_on_sqlite, partner_on_sqlite.post(gzipped(bomb), GZIP), "not JSON")


def test_a_gzip_bomb_uses_bounded_memory(partner_on_sqlite: ApiPartner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decompressor never returns more than one byte beyond the limit."""
    sizes: list[int] = []
    make = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._real = make(wbits)

        def decompress(self, body: bytes, max_length: int) -> bytes:
            part = self._real.decompress(body, max_length)
            sizes.append(len(part))
            return part

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    partner_on_sqlite.post(gzipped(bytes(64 * MIB)), GZIP)
    assert sizes == [8 * MIB + 1]


def test_a_gzip_body_of_many_members_is_refused(partner_on_sqlite: ApiPartner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member costs a copy of the rest: a body of empty ones would occupy a thread for most of a minute."""
    created: list[int] = []
    make = zlib.decompressobj

    def make_counted(wbits: int) -> Any:
        created.append(wbits)
        return make(wbits)

    monkeypatch.setattr(zlib, "decompressobj", make_counted)
    check_bad_request(partner_on_sqlite, partner_on_sqlite.post(gzipped(b"") * 100_000, GZIP), "more than 256 members")
    assert len(created) == 256


@given(body=st.binary(max_size=300), limit=st.integers(0, 300), cuts=st.lists(st.integers(0, 300), max_size=3))
def test_a_gzip_body_is_read_completely_or_not_at_all(body: bytes, limit: int, cuts: list[int]) -> None:
    """It may have one member or several, and never gives more than the limit."""
    ends = sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})
    members = b"".join(gzipped(body[start:end]) for start, end in itertools.pairwise(ends)) or gzipped(b"")

    async def outcome() -> bytes | str:
        try:
            return await decompress_gzip(members, max_bytes=limit)
        except Exception as error:
            return type(error).__name__

    assert asyncio.run(outcome()) == (body if len(body) <= limit else "BadRequest")


# Content type


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;x"]
)
def test_the_content_type_is_json(partner_on_sqlite: ApiPartner, content_type: str) -> None:
    """It may be in any case and have any parameters (RFC 9110 section 8.3.1)."""
    assert counts(partner_on_sqlite.post(raw(GOOD), ("content-type", content_type))) == (1, 1, 0, 0, 0)


@pytest.mark.parametrize(
    "content_types",
    [[""], ["text/json"], ["application/jsonx"], ["application/x-json"], ["application/vnd.api+json"], ["json"],
     ["application/x-www-form-urlencoded"], ["multipart/form-data"], ["text/plain; application/json"], [b"\xff"],
     ["application/json", "application/json"], ["application/json", "text/plain"], ["application/json, text/plain"]],
)  # fmt: skip
def test_any_other_content_type_is_refused(partner_on_sqlite: ApiPartner, content_types: list[str | bytes]) -> None:
    """None and two of them too; a browser's form cannot submit anything."""
    answer = partner_on_sqlite.post(raw(GOOD), *((JSON[0], content_type) for content_type in content_types))
    check_bad_request(partner_on_sqlite, answer, "The content type must be application/json")
