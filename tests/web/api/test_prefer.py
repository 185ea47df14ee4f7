"""The `Prefer` header and `Preference-Applied` (RFC 7240; docs/interface.md section D6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.web.api.prefer import read_preferences
from tests.unsubscribes.partner import out
from tests.web.api.partner import JSON, ApiPartner
from tests.web.application import Answer

ITEMS = [out("ann@x.org"), out("nobody")]
MINIMAL, LENIENT = "return=minimal", "handling=lenient"


def submit_bad_item(partner: ApiPartner, *prefer: str) -> Answer:
    """Submit a batch with a bad item and these preferences."""
    return partner.post({"items": ITEMS}, JSON, *(("prefer", text) for text in prefer))


# Each with the value of `Preference-Applied`.
LENIENTLY = {
    LENIENT: LENIENT,
    "Handling=Lenient": LENIENT,
    ' handling = "lenient" ': LENIENT,
    "handling=lenient; x=y": LENIENT,
    "respond-async, handling=lenient, wait=10": LENIENT,
    "handling=lenient, handling=strict": LENIENT,
    f"{MINIMAL}, {LENIENT}": f"{MINIMAL}, {LENIENT}",
    f"{LENIENT},return=representation": f"{LENIENT}, return=representation",
    f'x="a, b", {LENIENT}': LENIENT,
    f',, {LENIENT},': LENIENT,
}  # fmt: skip
STRICTLY = [
    "",
    "handling",
    "handling=",
    "handling=strict",
    "handling=loose",
    "handling=strict, handling=lenient",
    "handling=loose, handling=lenient",
    "handling=lenient-ish",
    "xhandling=lenient",
    "lenient",
    "x; handling=lenient",
    'x="a, handling=lenient"',
    r'x="\", handling=lenient, \""',
    'x="a, handling=lenient',
    "lenient=handling",
]


@pytest.mark.parametrize(("prefer", "applied"), LENIENTLY.items())
def test_a_lenient_preference_is_applied(partner_on_sqlite: ApiPartner, prefer: str, applied: str) -> None:
    """It may be in any case, have spaces, quotes and parameters, and stand beside unknown preferences."""
    answer = submit_bad_item(partner_on_sqlite, prefer)
    assert answer.status == 200
    assert answer.header("preference-applied") == applied
    assert ("items" in answer.json()) is (MINIMAL not in applied)


@pytest.mark.parametrize("prefer", STRICTLY)
def test_anything_else_is_handled_strictly(partner_on_sqlite: ApiPartner, prefer: str) -> None:
    """The first of a repeated preference counts (RFC 7240 section 2), and quoted text is no preference."""
    answer = submit_bad_item(partner_on_sqlite, prefer)
    assert (answer.status, answer.error) == (400, "invalid_item")
    assert answer.header("preference-applied") is None


def test_preferences_may_come_in_several_headers(partner_on_sqlite: ApiPartner) -> None:
    """RFC 7240 section 2: as if they were one."""
    answer = submit_bad_item(partner_on_sqlite, "return=minimal", "handling=lenient", "return=representation")
    assert answer.header("preference-applied") == f"{MINIMAL}, {LENIENT}"
    assert "items" not in answer.json()


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        (None, None),
        ("", None),
        ("respond-async", None),
        ("return=headers-only", None),
        ("handling=strict", "handling=strict"),
        ("return=representation", "return=representation"),
        (MINIMAL, MINIMAL),
        (LENIENT, LENIENT),
        (f"{MINIMAL}, {LENIENT}", f"{MINIMAL}, {LENIENT}"),
    ],
)
def test_applied_preferences_are_named_and_no_others(
    partner_on_sqlite: ApiPartner, prefer: str | None, applied: str | None
) -> None:
    """The answer has its items unless `return=minimal` was applied, and is the same otherwise."""
    plain = partner_on_sqlite.submit(out("ann@x.org", partner_on_sqlite.ago(5))).json()
    answer = partner_on_sqlite.submit(out("ann@x.org", partner_on_sqlite.ago(5)), prefer=prefer)
    assert answer.header("preference-applied") == applied
    body = answer.json()
    assert ("item_errors" in body) is (LENIENT in (applied or ""))
    assert ("items" in body) is (MINIMAL not in (applied or ""))
    changed = {"submission_id", "created", "unchanged", "items", "item_errors"}
    assert {name: body[name] for name in body.keys() - changed} == {
        name: plain[name] for name in plain.keys() - changed
    }
    assert (plain["created"], body["created"], body["unchanged"]) == (1, 0, 1)


def test_preferences_are_ignored_on_get(partner_on_sqlite: ApiPartner) -> None:
    partner_on_sqlite.submit(out("ann@x.org"))
    answer = partner_on_sqlite.get("", ("prefer", f"{MINIMAL}, {LENIENT}"))
    assert (len(answer.json()["items"]), answer.header("preference-applied")) == (1, None)


@given(st.lists(st.binary() | st.text('",;=\\ handlingretu', max_size=40).map(str.encode), max_size=3))
def test_any_preferences_are_read(values: list[bytes]) -> None:
    """Any bytes: only preferences that were sent are applied."""
    preferences = read_preferences([(b"prefer", value) for value in values])
    assert preferences.is_lenient is (LENIENT in preferences.applied)
    assert preferences.is_minimal is (MINIMAL in preferences.applied)


@pytest.mark.parametrize(
    "value", ['"' + '\\"' * 30_000, '"\\"' * 20_000 + "\\", '"' * 60_001, "," * 60_000, "=" * 60_000]
)
def test_a_header_of_60_kib_is_read_at_once(value: str) -> None:
    """Unclosed quotes must not cost quadratic time: the test would not end."""
    assert read_preferences([(b"prefer", value.encode())] * 20).applied == ""
