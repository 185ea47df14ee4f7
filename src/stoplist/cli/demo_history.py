"""The history of a demo: two months of opt-outs of a bookshop that does not exist.

The opt-outs are submitted by the ordinary operations, with a clock set back, and are the same at every start. The
addresses are real nowhere: the domains are those of RFC 2606, the phone numbers those reserved for fiction (555-01xx in
North America; 07700 900xxx and 020 7946 0xxx in Britain, according to Ofcom).
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from stoplist import ids
from stoplist.actor import Actor
from stoplist.clock import DAY_MS, Clock
from stoplist.db import Database
from stoplist.oauth.credentials import create_credential, list_credentials
from stoplist.oauth.model import PERMISSIONS, Credential
from stoplist.oauth.usage import Usage
from stoplist.organizations.groups import create_group, list_groups
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import create_organization, list_organizations
from stoplist.records.daily_counts import recent_changes
from stoplist.rfc3339 import format_ms
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import RESUBSCRIBED, BadItem, Item, OptOutStores, RequestedTarget, SentReason
from stoplist.unsubscribes.submit import submit

SLUG, NAME = "lantern-books", "Lantern Books"
DAYS = 60
_KEY_LABEL = "Shop, nightly"
_OTHER_GROUPS = ("Offers", "Order news")
_SEED = 5
_MAX_AGE_MS = 20 * 3_600_000
_MONDAY = 4  # the first Monday in days since 1970, which began on a Thursday
_WEEKDAY_FACTORS = (1.15, 1.3, 1.2, 1.1, 0.95, 0.5, 0.4)
_MAILING_FACTORS = {19: 2.6, 40: 2.0}
"""Days ago on which a message went to everyone, and by which factor more people opted out."""
_RESUBSCRIBE_SHARE = 0.04
_MIN_DAYS_OUT = 3

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
    """The opt-outs of a channel and group: how many per day, and for which reasons; `group` None means every group."""

    channel: str
    group: str | None
    per_day: float
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
    """Create an organization with three groups, a key that was used, and DAYS days of opt-outs.

    What an interrupted call already made is kept and completed, with the same addresses and times.
    """
    organization = await _organization(actor, database, clock)
    # All times follow from this one, so that a later call makes the rest of the same history.
    end_ms = organization.created_ms + DAYS * DAY_MS
    founded = _days_before(end_ms, DAYS)
    groups = await _groups(actor, database, founded)
    credential = await _credential(actor, database, founded)
    key = Actor(kind="client", id=credential.client_id, may=frozenset(PERMISSIONS))
    first_missing = await _first_missing_day(actor, database, end_ms)
    rng = Random(_SEED)  # noqa: S311 - not for security
    opted_out_by_stream: list[list[str]] = [[] for _ in _STREAMS]
    for days_ago in range(DAYS, -1, -1):
        past_clock = _days_before(end_ms, days_ago)
        stores = OptOutStores(database=database, clock=past_clock, secret_keys=())
        now_ms = end_ms - days_ago * DAY_MS
        days = [
            _items(rng, stream, opted_out, now_ms, days_ago)
            for stream, opted_out in zip(_STREAMS, opted_out_by_stream, strict=True)
        ]
        if now_ms // DAY_MS < first_missing:
            continue
        # All submissions of a day at once, so that they share commits.
        await asyncio.gather(
            *(
                submit(key, stores, CHANNELS[stream.channel], _target(stream, groups), items)
                for stream, items in zip(_STREAMS, days, strict=True)
            )
        )
    if credential.last_used_ms is None:
        await _record_usage(rng, database, end_ms, key.id)


async def _organization(actor: Actor, database: Database, clock: Clock) -> Organization:
    for organization in await list_organizations(actor, database):
        if organization.slug == SLUG:
            return organization
    founded = _days_before(clock.now_ms(), DAYS)
    return await create_organization(actor, database, founded, slug=SLUG, name=NAME, default_group="Newsletter")


async def _groups(actor: Actor, database: Database, founded: Clock) -> dict[str, str]:
    """Return the ids of the groups besides the default one, by name."""
    known = {group.name: group.group_id for group in await list_groups(actor, database, org_slug=SLUG)}
    for name in _OTHER_GROUPS:
        if name not in known:
            known[name] = (await create_group(actor, database, founded, org_slug=SLUG, name=name)).group_id
    return {name: known[name] for name in _OTHER_GROUPS}


async def _credential(actor: Actor, database: Database, founded: Clock) -> Credential:
    for credential in await list_credentials(actor, database):
        if (credential.label, credential.organizations) == (_KEY_LABEL, [SLUG]):
            return credential
    created = await create_credential(
        actor, database, founded, label=_KEY_LABEL, organizations=[SLUG], permissions=frozenset(PERMISSIONS)
    )
    return created.credential


async def _first_missing_day(actor: Actor, database: Database, end_ms: int) -> int:
    """Return the first day, counted from 1970 UTC, of which opt-outs may be missing.

    The last two days are submitted again: a call may have ended within a day, which midnight may have divided.
    """
    changes = await recent_changes(actor, database, _days_before(end_ms, 0), days=DAYS + 2, org_slug=SLUG)
    return max((count.day - 1 for count in changes.days if count.unsubscribed), default=0)


def _target(stream: _Stream, groups: dict[str, str]) -> RequestedTarget:
    return RequestedTarget(group_id=groups.get(stream.group or ""), all_groups=stream.group is None)


def _days_before(end_ms: int, days: int) -> Clock:
    past_clock = Clock()
    past_clock.offset_ms = end_ms - past_clock.local_ms() - days * DAY_MS
    return past_clock


def _items(rng: Random, stream: _Stream, opted_out: list[str], now_ms: int, days_ago: int) -> Sequence[Item | BadItem]:
    """Return the items of one day, and keep `opted_out`, the addresses of the stream that are out, up to date."""
    weekday = (now_ms // DAY_MS - _MONDAY) % 7
    count = round(
        stream.per_day * _WEEKDAY_FACTORS[weekday] * rng.uniform(0.8, 1.2) * _MAILING_FACTORS.get(days_ago, 1.0)
    )
    long_out = len(opted_out) - count * _MIN_DAYS_OUT
    back = [
        opted_out.pop(rng.randrange(long_out))
        for _ in range(count)
        if long_out > count and rng.random() < _RESUBSCRIBE_SHARE
    ]
    new = [_ADDRESSES[stream.channel](rng) for _ in range(max(1, count))]
    opted_out += new
    reasons, weights = list(stream.reasons), [weight for weight, _ in stream.reasons.values()]
    return [
        *(
            Item(address=address, reason=reason, source=stream.reasons[reason][1], occurred_at=_moment(rng, now_ms))
            for address, reason in zip(new, rng.choices(reasons, weights, k=len(new)), strict=True)
        ),
        *(
            Item(address=address, status=RESUBSCRIBED, source="asked for it again", occurred_at=_moment(rng, now_ms))
            for address in back
        ),
    ]


def _moment(rng: Random, now_ms: int) -> str:
    return format_ms(now_ms - rng.randrange(60_000, _MAX_AGE_MS))


def _mail_address(rng: Random) -> str:
    number = rng.choice(("", "", str(rng.randrange(1, 99))))
    return f"{rng.choice(_FIRST)}.{rng.choice(_LAST)}{number}@{rng.choice(_DOMAINS)}"


def _mobile(rng: Random) -> str:
    american = f"+1{rng.choice(_AREA_CODES)}55501{rng.randrange(100):02}"
    return rng.choice((american, f"+447700900{rng.randrange(1000):03}"))


def _landline(rng: Random) -> str:
    return f"+442079460{rng.randrange(1000):03}"


_ADDRESSES = {"email": _mail_address, "sms": _mobile, "phone": _landline}


async def _record_usage(rng: Random, database: Database, end_ms: int, client_id: str) -> None:
    """Record that the key was used every day, and sometimes refused."""
    usage = Usage()
    for days_ago in range(DAYS, 0, -1):
        now_ms = end_ms - days_ago * DAY_MS
        codes: list[str | None] = [None] * rng.randrange(30, 60)
        codes += ["rate_limited"] * (rng.randrange(8, 20) if days_ago in _MAILING_FACTORS or days_ago == 3 else 0)
        codes += ["invalid_client"] * (2 if days_ago == 5 else 0)
        for at, code in enumerate(codes):
            usage.note(
                client_id,
                now_ms=now_ms + at * 1000,
                is_authenticated=code != "invalid_client",
                error=code,
                request_id=ids.new_request_id(),
            )
    await usage.flush(database)
