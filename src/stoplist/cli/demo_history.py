"""What a demo has behind it: two months of opt-outs of a bookshop that does not exist.

All of it goes through the ordinary operations, with a clock that stands in the past; chance is the same at every start.
Nobody has these addresses: domains are those of RFC 2606, numbers those that are kept for fiction (555-01xx in North
America; 07700 900xxx and 020 7946 0xxx in Britain, says Ofcom).
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from stoplist import ids
from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.oauth.credentials import create_credential
from stoplist.oauth.model import PERMISSIONS
from stoplist.oauth.usage import Usage
from stoplist.organizations.groups import create_group
from stoplist.organizations.organizations import create_organization
from stoplist.rfc3339 import format_ms
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import RESUBSCRIBED, BadItem, Item, OptOutStores, RequestedTarget, SentReason
from stoplist.unsubscribes.submit import submit

SLUG, NAME = "lantern-books", "Lantern Books"
DAYS = 60
_SEED = 5
_DAY_MS = 86_400_000
_WITHIN_MS = 20 * 3_600_000
_MONDAY = 4  # of the days since 1970, which began on a Thursday
_OF_WEEKDAY = (1.15, 1.3, 1.2, 1.1, 0.95, 0.5, 0.4)
_MAILINGS = {19: 2.6, 40: 2.0}
"""So many days ago something was sent to everyone, and so many times more opted out."""
_COME_BACK = 0.04
_KNOWN_FOR_DAYS = 3

_NAMES = (
    """
ada alba anton bela carla cem dara dmitri elin emil esra ewa fadi finn greta hana hugo ida ines ivo jana jonas kaya lena
leon luca mara mateo mila nadia nils noor olga oskar pavel petra rafa rosa sami selma sofia stella theo tuva vera yara
""",
    """
abel arslan berg blom brandt costa dahl evans ferrer fischer garcia haas holm ivanov jansen keller kovac larsen lind
marin meyer moreau nowak okafor olsen park pereira quinn rossi sato silva stein tanaka torres varga weber wolf young
""",
)
_FIRST, _LAST = (names.split() for names in _NAMES)
_DOMAINS = ("example.com", "example.net", "example.org")
_AREA_CODES = (206, 212, 303, 312, 404, 415, 503, 512, 617, 702)


class _Stream(NamedTuple):
    """What arrives on a channel for a group: how many a day, and why; `group` None is every group."""

    channel: str
    group: str | None
    a_day: float
    reasons: dict[SentReason, tuple[float, str | None]]


_BY_MAIL: dict[SentReason, tuple[float, str | None]] = {
    "unsubscribe": (62, "link in the newsletter"),
    "bounce": (17, None),
    "complaint": (9, "report by the mailbox provider"),
    "invalid_address": (5, None),
    "manual": (4, "told the shop"),
    "import": (3, "list of the former shop"),
}
_BY_TEXT: dict[SentReason, tuple[float, str | None]] = {
    "stop_keyword": (72, "STOP"),
    "unsubscribe": (18, "account page"),
    "invalid_address": (10, None),
}
_BY_CALL: dict[SentReason, tuple[float, str | None]] = {
    "manual": (60, "said so on the phone"),
    "unsubscribe": (25, "account page"),
    "legal": (15, "letter"),
}
_STREAMS = (
    _Stream("email", "Newsletter", 34, _BY_MAIL),
    _Stream("email", "Offers", 11, _BY_MAIL),
    _Stream("sms", "Offers", 14, _BY_TEXT),
    _Stream("phone", None, 5, _BY_CALL),
)


async def fill(actor: Actor, database: Database, clock: Clock) -> None:
    """There is an organization with three groups, a key that was used, and DAYS days of opt-outs."""
    founded = _days_before(clock, DAYS)
    await create_organization(actor, database, founded, slug=SLUG, name=NAME, default_group="Newsletter")
    groups = {
        name: (await create_group(actor, database, founded, org_slug=SLUG, name=name)).group_id
        for name in ("Offers", "Order news")
    }
    created = await create_credential(
        actor, database, founded, label="Shop, nightly", organizations=[SLUG], permissions=frozenset(PERMISSIONS)
    )
    key = Actor(kind="client", id=created.credential.client_id, may=frozenset(PERMISSIONS))
    chance = Random(_SEED)  # noqa: S311 - it decides nothing
    barred: list[list[str]] = [[] for _ in _STREAMS]
    for ago in range(DAYS, -1, -1):
        then = _days_before(clock, ago)
        stores = OptOutStores(database=database, clock=then, secret_keys=())
        days = [_items(chance, stream, out, then.now_ms(), ago) for stream, out in zip(_STREAMS, barred, strict=True)]
        # All of a day at once: they share commits.
        await asyncio.gather(
            *(
                submit(key, stores, CHANNELS[stream.channel], _target(stream, groups), items)
                for stream, items in zip(_STREAMS, days, strict=True)
            )
        )
    await _use(chance, database, clock, key.id)


def _target(stream: _Stream, groups: dict[str, str]) -> RequestedTarget:
    return RequestedTarget(group_id=groups.get(stream.group or ""), all_groups=stream.group is None)


def _days_before(clock: Clock, days: int) -> Clock:
    then = Clock()
    then.offset_ms = clock.now_ms() - then.local_ms() - days * _DAY_MS
    return then


def _items(chance: Random, stream: _Stream, out: list[str], now_ms: int, ago: int) -> Sequence[Item | BadItem]:
    """What one day brings; `out` has everybody of the stream who is out, and is kept so."""
    weekday = (now_ms // _DAY_MS - _MONDAY) % 7
    count = round(stream.a_day * _OF_WEEKDAY[weekday] * chance.uniform(0.8, 1.2) * _MAILINGS.get(ago, 1.0))
    long_out = len(out) - count * _KNOWN_FOR_DAYS
    back = [
        out.pop(chance.randrange(long_out)) for _ in range(count) if long_out > count and chance.random() < _COME_BACK
    ]
    new = [_ADDRESSES[stream.channel](chance) for _ in range(max(1, count))]
    out += new
    reasons, weights = list(stream.reasons), [weight for weight, _ in stream.reasons.values()]
    return [
        *(
            Item(address=address, reason=reason, source=stream.reasons[reason][1], occurred_at=_moment(chance, now_ms))
            for address, reason in zip(new, chance.choices(reasons, weights, k=len(new)), strict=True)
        ),
        *(
            Item(address=address, status=RESUBSCRIBED, source="asked for it again", occurred_at=_moment(chance, now_ms))
            for address in back
        ),
    ]


def _moment(chance: Random, now_ms: int) -> str:
    return format_ms(now_ms - chance.randrange(60_000, _WITHIN_MS))


def _mail_address(chance: Random) -> str:
    number = chance.choice(("", "", str(chance.randrange(1, 99))))
    return f"{chance.choice(_FIRST)}.{chance.choice(_LAST)}{number}@{chance.choice(_DOMAINS)}"


def _mobile(chance: Random) -> str:
    american = f"+1{chance.choice(_AREA_CODES)}55501{chance.randrange(100):02}"
    return chance.choice((american, f"+447700900{chance.randrange(1000):03}"))


def _line(chance: Random) -> str:
    return f"+442079460{chance.randrange(1000):03}"


_ADDRESSES = {"email": _mail_address, "sms": _mobile, "phone": _line}


async def _use(chance: Random, database: Database, clock: Clock, client_id: str) -> None:
    """The key was used every day, and now and then refused."""
    usage = Usage()
    for ago in range(DAYS, 0, -1):
        now_ms = _days_before(clock, ago).now_ms()
        codes: list[str | None] = [None] * chance.randrange(30, 60)
        codes += ["rate_limited"] * (chance.randrange(8, 20) if ago in _MAILINGS or ago == 3 else 0)
        codes += ["invalid_client"] * (2 if ago == 5 else 0)
        for at, code in enumerate(codes):
            usage.note(
                client_id,
                now_ms=now_ms + at * 1000,
                is_authenticated=code != "invalid_client",
                error=code,
                request_id=ids.new_request_id(),
            )
    await usage.flush(database)
