"""Made-up people: their addresses, batches of their opt-outs, and the rows of such batches."""

import random
import string
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

_LETTERS = string.ascii_lowercase + string.digits
_FIRST_MS = 1_750_000_000_000
_SPAN_MS = 10_000_000_000
_DOMAINS = tuple(f"{name}{number}.example" for name in ("mail", "post", "inbox", "letters") for number in range(250))
# Numbers with these prefixes have nine more digits. The stride has no divisor in common with their count, so it visits
# each number once, in a scattered order.
_PREFIXES = ("+447", "+4915", "+12")
_NUMBERS, _STRIDE, _PEOPLE_PER_SEED, _SEEDS = 10**9, 618_033_989, 10_000_000, 97

Row = tuple[int, str, int, str, int, str, str, str | None, int, int, str, int, int]
INSERT_ROW = "INSERT INTO unsubscribes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
COLUMNS = (
    *("feed_id", "address", "group_no", "id", "seq", "status", "reason", "source", "occurred_ms", "recorded_ms"),
    *("submission_id", "latest_act_ms", "is_confirmed"),
)


class Act(msgspec.Struct, frozen=True):
    """One opt-out."""

    address: str
    occurred_ms: int


class People:
    """An endless supply of people; the same seed gives the same people."""

    def __init__(self, channel: str, seed: int) -> None:
        self._channel = channel
        self._random = random.Random(seed)  # noqa: S311 - addresses are no secret here
        self._next = seed % _SEEDS * _PEOPLE_PER_SEED

    def acts(self, count: int) -> list[Act]:
        """Return opt-outs of `count` new people."""
        address = self._email if self._channel == "email" else self._number
        return [Act(address(), _FIRST_MS + self._random.randrange(_SPAN_MS)) for _ in range(count)]

    def _email(self) -> str:
        return f"{''.join(self._random.choices(_LETTERS, k=12))}@{self._random.choice(_DOMAINS)}"

    def _number(self) -> str:
        self._next += 1
        return f"{_PREFIXES[self._next % 3]}{self._next * _STRIDE % _NUMBERS:09}"


def batch_body(acts: Sequence[Act]) -> bytes:
    """Return the JSON of a submission."""
    items = [{"address": act.address, "occurred_at": _text(act.occurred_ms)} for act in acts]
    return msgspec.json.encode({"items": items})


def rows(acts: Sequence[Act], *, feed_id: int, after: int) -> list[Row]:
    """Return the rows of the acts, numbered from `after` on, with the columns as the product fills them."""
    recorded_ms = _FIRST_MS + _SPAN_MS
    return [
        (
            feed_id,
            act.address,
            1,
            f"uns_{random.getrandbits(104):022}"[:26],
            after + number,
            "unsubscribed",
            "unsubscribe",
            None,
            act.occurred_ms,
            recorded_ms,
            "sub_0123456789abcdefghijkl",
            act.occurred_ms,
            0,
        )
        for number, act in enumerate(acts, 1)
    ]


def _text(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
