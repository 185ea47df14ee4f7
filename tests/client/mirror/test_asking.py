"""The answers of a mirror follow from its records (docs/interface.md sections D5 and D7), or are refused."""

import contextlib
import itertools
import math
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stoplist_addresses import AddressError, load_vectors
from stoplist_client import (
    ANY_GROUP,
    Client,
    ConfigurationError,
    Item,
    MemoryStore,
    Mirror,
    MirrorTooOld,
    NotMirrored,
    StoplistClientError,
    UnauthorizedOrganization,
)

from tests.client.partners import Partner
from tests.constants import DAY_S

NOBODYS_GROUP = "grp_" + "0" * 22
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)

_examples = itertools.count(1)
_moments = itertools.count(1)

people = st.sampled_from(["ann", "bob", "Eve"])
groups = st.sampled_from(["newsletter", "reminders", "all"])
acts = st.lists(st.tuples(people, groups, st.booleans()), max_size=7)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


def test_group_decides_who_is_barred(partner: Partner, mirror: Mirror, client: Client) -> None:
    """A group bars opt-outs of it and of all groups; None those of all groups; ANY_GROUP all."""
    ids = {"newsletter": partner.group_id, "reminders": partner.other_group_id}

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(acts=acts)
    def answers(acts: list[tuple[str, str, bool]]) -> None:
        example = next(_examples)
        left: dict[tuple[str, str], bool] = {}
        for person, group, leaves in acts:
            submit = client.unsubscribe if leaves else client.resubscribe
            target: dict[str, Any] = {"all_groups": True} if group == "all" else {"group_id": ids[group]}
            at = LONG_AGO + timedelta(seconds=next(_moments))
            submit("email", [Item(f"{person}-{example}@example.org", at)], **target)
            left[person, group] = leaves
        mirror.sync()
        for person in ("ann", "bob", "Eve"):
            asked_as = f" {person.upper()}-{example}@Example.ORG "
            of = {group: left.get((person, group), False) for group in ("newsletter", "reminders", "all")}
            expected = {
                ids["newsletter"]: of["newsletter"] or of["all"],
                ids["reminders"]: of["reminders"] or of["all"],
                NOBODYS_GROUP: of["all"],
                None: of["all"],
                ANY_GROUP: any(of.values()),
            }
            found = {group: mirror.is_barred("email", asked_as, group_id=group) for group in expected}
            assert found == expected
            in_bulk = {
                group: not list(mirror.filter_allowed("email", [asked_as], group_id=group)) for group in expected
            }
            assert in_bulk == expected

    answers()


def test_every_spelling_of_the_vectors_is_barred(
    partner: Partner, client: Client, new_mirror: Callable[..., Mirror]
) -> None:
    """Invalid addresses are never allowed."""
    mirror = new_mirror(client)
    vectors = load_vectors()
    for channel in ("email", "sms", "phone"):
        good = {vector.canonical for vector in vectors if vector.channel == channel and vector.canonical is not None}
        client.unsubscribe(channel, sorted(good), group_id=partner.group_id)
    mirror.follow("email", "sms", "phone")
    mirror.sync()
    asked: dict[str, Any] = {"group_id": partner.group_id}
    for channel, typed, canonical, _ in vectors:
        if canonical is None:
            with pytest.raises(AddressError):
                mirror.is_barred(channel, typed, **asked)  # type: ignore[arg-type]
        else:
            assert mirror.is_barred(channel, typed, **asked), typed  # type: ignore[arg-type]
        (checked,) = mirror.check(channel, [typed], **asked)  # type: ignore[arg-type]
        assert (checked.canonical, checked.address) == (canonical, typed)
        assert checked.verdict == ("invalid" if canonical is None else "barred")
        assert bool(checked.problem) == (canonical is None)
        assert not list(mirror.filter_allowed(channel, [typed], **asked))  # type: ignore[arg-type]


def test_many_addresses_keep_their_order_and_spelling(partner: Partner, mirror: Mirror, client: Client) -> None:
    """Each address gets the verdict that it gets alone, over several slices."""
    client.unsubscribe("email", [f"p{number}@example.org" for number in range(0, 4500, 3)])
    mirror.sync()
    given = [f"P{number}@Example.org" if number % 5 else f"nobody-{number}" for number in range(4500)]
    verdicts = [one.verdict for one in mirror.check("email", given, group_id=partner.group_id)]
    alone = ["invalid" if n % 5 == 0 else "barred" if n % 3 == 0 else "allowed" for n in range(4500)]
    assert verdicts == alone
    allowed = list(mirror.filter_allowed("email", iter(given), group_id=partner.group_id))
    assert allowed == [address for address, verdict in zip(given, alone, strict=True) if verdict == "allowed"]


def test_addresses_are_read_lazily(partner: Partner, mirror: Mirror) -> None:
    mirror.sync()
    endless = (f"p{number}@example.org" for number in itertools.count())
    allowed = mirror.filter_allowed("email", endless, group_id=None)
    assert list(itertools.islice(allowed, 3)) == ["p0@example.org", "p1@example.org", "p2@example.org"]


def test_incomplete_feed_does_not_answer(partner: Partner, mirror: Mirror, client: Client) -> None:
    """The address may be on a later page."""
    client.unsubscribe("email", [f"p{number}@example.org" for number in range(10)])
    everything = (
        lambda: mirror.is_barred("email", "p9@example.org", group_id=None, max_age_s=math.inf),
        lambda: list(mirror.filter_allowed("email", ["p9@example.org"], group_id=None, max_age_s=math.inf)),
        lambda: list(mirror.check("email", ["p9@example.org"], group_id=None, max_age_s=math.inf)),
        lambda: list(mirror.records("email")),
    )
    for ask in everything:
        with pytest.raises(NotMirrored):
            ask()
    with pytest.raises(NotMirrored, match="phone"):
        mirror.is_barred("phone", "+14155550123", group_id=None)

    with pytest.raises(KeyboardInterrupt):
        mirror.sync(on_progress=Mock(side_effect=KeyboardInterrupt))
    assert [(feed.records, feed.age_s) for feed in mirror.feeds()] == [(3, None)]
    for ask in everything:
        with pytest.raises(NotMirrored):
            ask()
    mirror.sync()
    assert mirror.is_barred("email", "p9@example.org", group_id=partner.group_id)


def test_old_mirror_does_not_answer(partner: Partner, client: Client, new_mirror: Callable[..., Mirror]) -> None:
    """The error has its age; a query may allow more or any age; a synchronisation resets it."""
    clock = Clock()
    mirror = new_mirror(client, clock=clock)
    mirror.follow("email")
    mirror.sync()
    clock.now_s += DAY_S
    assert not mirror.is_barred("email", "ann@example.org", group_id=None)
    clock.now_s += 1
    for ask in (
        lambda: mirror.is_barred("email", "ann@example.org", group_id=None),
        lambda: list(mirror.filter_allowed("email", ["ann@example.org"], group_id=None)),
        lambda: list(mirror.check("email", ["ann@example.org"], group_id=None)),
        lambda: mirror.is_barred("email", "ann@example.org", group_id=None, max_age_s=DAY_S + 0.5),
    ):
        with pytest.raises(MirrorTooOld) as refused:
            ask()
        assert refused.value.age_s == DAY_S + 1
    assert not mirror.is_barred("email", "ann@example.org", group_id=None, max_age_s=DAY_S + 1)
    assert not mirror.is_barred("email", "ann@example.org", group_id=None, max_age_s=math.inf)
    assert list(mirror.filter_allowed("email", ["a@example.org"], group_id=None, max_age_s=math.inf))
    mirror.sync()
    assert not mirror.is_barred("email", "ann@example.org", group_id=None)


def test_mirror_from_the_future_does_not_answer(
    partner: Partner, client: Client, new_mirror: Callable[..., Mirror]
) -> None:
    """A fast clock must not make a mirror young for years; corrections by seconds do no harm."""
    clock = Clock()
    mirror = new_mirror(client, clock=clock)
    mirror.follow("email")
    mirror.sync()
    clock.now_s -= 59
    assert not mirror.is_barred("email", "ann@example.org", group_id=None)
    clock.now_s -= 3_600
    with pytest.raises(MirrorTooOld, match="future"):
        mirror.is_barred("email", "ann@example.org", group_id=None)
    assert not mirror.is_barred("email", "ann@example.org", group_id=None, max_age_s=math.inf)


def test_age_counts_from_the_last_request(
    client: Client, new_mirror: Callable[..., Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes during the answer are not in it, and the request that ends a synchronisation reads nothing."""
    clock = Clock()
    run = client._driver.run

    def run_slowly(flow: Any) -> Any:
        answer = run(flow)
        clock.now_s += 100
        return answer

    monkeypatch.setattr(client._driver, "run", run_slowly)
    mirror = new_mirror(client, clock=clock)
    mirror.follow("email")
    mirror.sync()
    assert [feed.age_s for feed in mirror.feeds()] == [200]


def test_invalid_group_is_refused(new_partner: Callable[..., Partner], new_mirror: Callable[..., Mirror]) -> None:
    """A malformed id or a group of another organization would bar too few people."""
    ours, theirs = new_partner(), new_partner()
    for partner in (ours, theirs):
        with partner.client(org_slug=partner.org_slug, store=MemoryStore()) as client:
            client.unsubscribe("email", ["ann@example.org"])
            mirror = new_mirror(client)
            mirror.follow("email")
            with contextlib.suppress(UnauthorizedOrganization):  # the second key is not for the first organization
                mirror.sync()
    assert mirror.is_barred("email", "ann@example.org", org_slug=ours.org_slug, group_id=ours.group_id)
    for group in ("newsletter", "grp_1", ours.group_id + "x", ""):
        with pytest.raises(ConfigurationError, match="group_id"):
            mirror.is_barred("email", "ann@example.org", org_slug=ours.org_slug, group_id=group)
        with pytest.raises(ConfigurationError, match="group_id"):
            mirror.filter_allowed("email", [], org_slug=ours.org_slug, group_id=group)
    for ask in (mirror.check, mirror.filter_allowed):
        with pytest.raises(ConfigurationError, match=theirs.org_slug):
            list(ask("email", ["a@example.org"], org_slug=ours.org_slug, group_id=theirs.group_id))
    with pytest.raises(ConfigurationError, match=theirs.org_slug):
        mirror.is_barred("email", "ann@example.org", org_slug=ours.org_slug, group_id=theirs.group_id)


def test_group_is_known_from_its_first_record(partner: Partner, client: Client, mirror: Mirror) -> None:
    mirror.sync()
    assert not mirror.knows_group("email", partner.group_id)
    client.unsubscribe("email", ["ann@example.org"], group_id=partner.group_id)
    mirror.sync()
    assert mirror.knows_group("email", partner.group_id)
    assert not mirror.knows_group("email", "grp_" + "0" * 22)
    with pytest.raises(ConfigurationError, match="group_id"):
        mirror.knows_group("email", "newsletter")


def test_organization_is_optional_if_there_is_one(
    partner: Partner, mirror: Mirror, client: Client, new_mirror: Callable[..., Mirror]
) -> None:
    """It is optional until any process follows a second one on that channel."""
    client.unsubscribe("email", ["ann@example.org"])
    mirror.sync()
    assert mirror.is_barred("email", "ann@example.org", group_id=partner.group_id)
    new_mirror().follow("phone", org_slug="another")
    assert mirror.is_barred("email", "ann@example.org", group_id=partner.group_id)
    new_mirror().follow("email", org_slug="another")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="org_slug"):
            mirror.is_barred("email", "ann@example.org", group_id=partner.group_id)
    with pytest.raises(ConfigurationError, match="org_slug"):
        list(mirror.filter_allowed("email", ["ann@example.org"], group_id=partner.group_id))
    assert mirror.is_barred("email", "ann@example.org", org_slug=partner.org_slug, group_id=partner.group_id)


def test_unknown_channel_is_refused(mirror: Mirror) -> None:
    for ask in (
        lambda: mirror.is_barred("fax", "ann@example.org", group_id=None),  # type: ignore[arg-type]
        lambda: mirror.filter_allowed("fax", [], group_id=None),  # type: ignore[arg-type]
        lambda: mirror.records("fax"),  # type: ignore[arg-type]
        lambda: mirror.follow("fax"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match="email"):
            ask()


def test_repr_shows_no_address(partner: Partner, mirror: Mirror) -> None:
    """This holds for a verdict and for a refusal."""
    mirror.sync()
    (checked,) = mirror.check("email", ["ann@example.org"], group_id=None)
    with pytest.raises(MirrorTooOld) as refused:
        mirror.is_barred("email", "ann@example.org", group_id=None, max_age_s=0)
    assert "ann" not in repr(checked) + str(refused.value) + repr(mirror)


def test_no_traceback_shows_an_address(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """Some programs log the locals of each frame."""
    client.unsubscribe("email", ["needle@example.org"])
    mirror.sync()
    address, bad = "".join(["nee", "dle@example.org"]), "".join(["nee", "dle"])
    many = [f"{bad}{number}@example.org" for number in range(3_000)]
    questions: list[dict[str, Any]] = [
        {"group_id": None, "max_age_s": 0},
        {"group_id": "newsletter"},
        {"group_id": None, "org_slug": "another"},
    ]
    asks: list[Callable[[], object]] = []
    for question in questions:
        asks += [
            partial(mirror.is_barred, "email", address, **question),
            partial(_all, mirror.check, "email", many, **question),
            partial(_all, mirror.filter_allowed, "email", many, **question),
        ]
    absent = new_mirror(name="absent.db")
    damaged = new_mirror(client, name="damaged.db")
    damaged.follow("email")
    damaged.sync()
    with closing(sqlite3.connect(tmp_path / "damaged.db")) as connection:
        connection.execute("DROP TABLE states")
    for asked in (absent, damaged):
        asks += [
            partial(asked.is_barred, "email", address, group_id=None),
            partial(_all, asked.check, "email", many, group_id=None),
            partial(_all, asked.filter_allowed, "email", many, group_id=None),
        ]
    asks += [
        partial(mirror.is_barred, "fax", address, group_id=None),  # type: ignore[arg-type]
        partial(mirror.is_barred, "email", bad, group_id=None),
        partial(_all, mirror.filter_allowed, "fax", many, group_id=None),
        partial(_all, mirror.filter_allowed, "email", address, group_id=None),
    ]
    for ask in asks:
        with pytest.raises((StoplistClientError, AddressError)) as refused:
            ask()
        # From our first frame; those before it are the test's, and may show addresses.
        frames = refused.value.__traceback__
        while frames is not None and "stoplist_client" not in frames.tb_frame.f_code.co_filename:
            frames = frames.tb_next
        assert frames is not None
        error = refused.value
        shown = traceback.TracebackException(type(error), error, frames, capture_locals=True)
        text = "".join(shown.format())
        assert "needle" not in text, text


def test_error_of_the_iterable_is_raised(mirror: Mirror) -> None:
    """The answers so far come first."""
    mirror.sync()

    def broken() -> Iterator[str]:
        yield from (f"p{number}@example.org" for number in range(2_500))
        raise RuntimeError

    allowed = mirror.filter_allowed("email", broken(), group_id=None)
    assert len(list(itertools.islice(allowed, 2_000))) == 2_000
    with pytest.raises(RuntimeError):
        next(allowed)


def _all(ask: Callable[..., Iterator[object]], *arguments: Any, **named: Any) -> list[object]:
    return list(ask(*arguments, **named))
