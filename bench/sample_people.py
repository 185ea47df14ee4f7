"""Made-up people: their addresses, batches of their opt-outs, and the rows of such batches."""

import random
import string
from collections.abc import Sequence

import msgspec

from bench.scripts import post
from stoplist.rfc3339 import format_ms

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
        self._path = f"/api/v1/unsubscribe/{channel}"
        self._address = self._email if channel == "email" else self._number
        self._random = random.Random(seed)  # noqa: S311 - addresses are no secret here
        self._next = seed % _SEEDS * _PEOPLE_PER_SEED

    def acts(self, count: int) -> list[Act]:
        """Return opt-outs of `count` new people."""
        return [Act(self._address(), _FIRST_MS + self._random.randrange(_SPAN_MS)) for _ in range(count)]

    def address(self) -> str:
        """Return the address of another person."""
        return self.acts(1)[0].address

    def post(self, access_token: str, count: int) -> bytes:
        """Return the request that submits opt-outs of `count` new people, for an answer without items."""
        return post(self._path, access_token, batch_body(self.acts(count)))

    def _email(self) -> str:
        return f"{''.join(self._random.choices(_LETTERS, k=12))}@{self._random.choice(_DOMAINS)}"

    def _number(self) -> str:
        self._next += 1
        return f"{_PREFIXES[self._next % 3]}{self._next * _STRIDE % _NUMBERS:09}"


def batch_body(acts: Sequence[Act]) -> bytes:
    """Return the JSON of a submission."""
    items = [{"address": act.address, "occurred_at": format_ms(act.occurred_ms)} for act in acts]
    return msgspec.json.encode({"items": items})


def rows(acts: Sequence[Act], *, feed_id: int, after: int) -> list[Row]:
    """Return the rows of the acts, numbered from `after` on, with the columns as the product fills them."""
    given, recorded_ms, submission_id = ("unsubscribed", "unsubscribe", None), _FIRST_MS + _SPAN_MS, f"sub_{'0' * 22}"
    return [
        (
            feed_id,
            act.address,
            1,
            _new_id(),
            seq,
            *given,
            act.occurred_ms,
            recorded_ms,
            submission_id,
            act.occurred_ms,
            0,
        )
        for seq, act in enumerate(acts, after + 1)
    ]


def _new_id() -> str:
    return f"uns_{random.getrandbits(104):022}"[:26]
