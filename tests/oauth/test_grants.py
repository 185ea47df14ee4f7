"""The answers of the two grants, the logs that they count in, and what they revoke.

Source: docs/interface.md sections 3, D2 and D8.
"""

import contextlib
import itertools
import re
import sqlite3
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoplist import ids
from stoplist.errors import StoreUnavailable
from stoplist.oauth.authentication import PresentedCredentials
from stoplist.oauth.model import ACCESS_TTL_S, REFRESH_TTL_S
from tests.builders import sql
from tests.constants import DAY_S
from tests.deployment import SharedDatabase, in_loop
from tests.keys import Key
from tests.oauth.partner import ELSEWHERE, NO_CREDENTIALS, PROGRAM, TokenDeployment, answer_of, pair_of

# RFC 6749 section 5.2: the characters of an error_description.
DESCRIPTION = re.compile(r"[\x20-\x21\x23-\x5B\x5D-\x7E]+")

# Rows: what is sent with the token. Columns: the state of the token. Cells: the answer, `!` if the alarm is raised, and
# the log that the request counts in. "other" is another client; "proved" and "failed" without a name are logs of the
# token's own client; "source" is the log of requests without a known client.
REFRESHES = """
sent              | active                | rotated                | revoked               | expired               | unknown
nothing           | pair, proved          | used!, proved          | revoked, failed       | expired, failed       | unknown, source
own id            | pair, proved          | used!, proved          | revoked, failed       | expired, failed       | unknown, failed
own key           | pair, proved          | used!, proved          | revoked, proved       | expired, proved       | unknown, proved
other id          | another, proved       | another!, proved       | another, other failed | another, other failed | unknown, other failed
unknown id        | another, proved       | another!, proved       | another, failed       | another, failed       | unknown, source
other key         | another, other proved | another!, other proved | another, other proved | another, other proved | unknown, other proved
wrong secret      | InvalidClient, failed | InvalidClient, failed  | InvalidClient, failed | InvalidClient, failed | InvalidClient, failed
unknown key       | InvalidClient, source | InvalidClient, source  | InvalidClient, source | InvalidClient, source | InvalidClient, source
secret alone      | InvalidClient, source | InvalidClient, source  | InvalidClient, source | InvalidClient, source | InvalidClient, source
malformed         | InvalidClient, source | InvalidClient, source  | InvalidClient, source | InvalidClient, source | InvalidClient, source
malformed, own id | InvalidClient, failed | InvalidClient, failed  | InvalidClient, failed | InvalidClient, failed | InvalidClient, failed
"""  # noqa: E501

# The ways to get a token in the state of a column.
TOKENS = {
    "active": ["active", "successor"],
    "rotated": ["rotated", "rotated twice"],
    "revoked": ["revoked", "rotated, then revoked", "of an old secret"],
    "expired": ["expired", "rotated, then expired", "revoked, then expired"],
    "unknown": ["unknown", "mistyped", "access token", "rotated pair's access token", "client secret"],
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "pooled"])
def module_database_url(request: pytest.FixtureRequest) -> str:
    """An empty database; the tests also run on PostgreSQL through PgBouncer."""
    url: str = request.getfixturevalue(f"module_{request.param}_url")
    return url


def cells() -> dict[tuple[str, str], tuple[str, str, bool]]:
    """Return the table by what was sent and the token's state: answer, log, alarm."""
    head, *rows = ([cell.strip() for cell in row.split("|")] for row in REFRESHES.strip().splitlines())
    return {
        (row[0], column): (answer.rstrip("!"), log, answer.endswith("!"))
        for row in rows
        for column, cell in zip(head[1:], row[1:], strict=True)
        for answer, log in [cell.split(", ")]
    }


CELLS = cells()
PRESENTATIONS = list(dict.fromkeys(sent for sent, _ in CELLS))


def presented(sent: str, own: Key, other: Key) -> PresentedCredentials:
    """Return what a row of the table sends with the token."""
    unknown_id = ids.new_id(ids.CLIENT_ID)
    return {
        "nothing": NO_CREDENTIALS,
        "own id": own.id_alone,
        "own key": own.presented,
        "other id": other.id_alone,
        "other key": other.presented,
        "unknown id": PresentedCredentials(client_id=unknown_id),
        "wrong secret": PresentedCredentials(client_id=own.client_id, client_secret=other.client_secret),
        "unknown key": PresentedCredentials(client_id=unknown_id, client_secret=own.client_secret),
        "secret alone": PresentedCredentials(client_secret=own.client_secret),
        "malformed": PresentedCredentials(is_malformed=True),
        "malformed, own id": PresentedCredentials(client_id=own.client_id, is_malformed=True),
    }[sent]


async def token_that_is(what: str, deployment: TokenDeployment, own: Key) -> str:
    """Return a token of this client, or a text like one, in the state that `what` names."""
    pair = await deployment.new_pair(own)
    if what.startswith(("rotated", "successor")):
        successor = pair_of(await deployment.refresh(pair.refresh_token))
        pair = successor if what == "successor" else pair
        if what == "rotated twice":
            await deployment.refresh(successor.refresh_token)
    if "revoked" in what:
        await deployment.revoke(own)
    if "expired" in what:
        deployment.clock.advance(REFRESH_TTL_S)
    return {
        "unknown": ids.new_secret(ids.REFRESH_TOKEN),
        "mistyped": pair.refresh_token[:-1] + ("a" if pair.refresh_token[-1] != "a" else "b"),
        "access token": pair.access_token,
        "rotated pair's access token": pair.access_token,
        "client secret": own.client_secret,
    }.get(what, pair.refresh_token)


async def prepared(deployment: TokenDeployment, what: str) -> tuple[Key, Key, str]:
    """Return a client, another one, and the first one's token; the limits have counted nothing."""
    own, other = await deployment.new_key(), await deployment.new_key()
    token = await token_that_is(what, deployment, own)
    if what == "of an old secret":
        own = await deployment.rotate_secret(own)
    deployment.forget_requests()
    return own, other, token


async def logs(deployment: TokenDeployment, own: Key, other: Key) -> list[str]:
    """Return the logs that hold a request, as the table names them, each as often as it holds one."""
    of_own = await deployment.counted(own.client_id)
    of_other = await deployment.counted(other.client_id)
    found = {
        "proved": of_own.proved,
        "failed": of_own.failed,
        "other proved": of_other.proved,
        "other failed": of_other.failed,
        "source": of_own.unknown,
    }
    return [name for name, count in found.items() for _ in range(count)]


@pytest.mark.parametrize("sent", PRESENTATIONS)
@pytest.mark.parametrize(("column", "what"), [(column, what) for column, several in TOKENS.items() for what in several])
@in_loop
async def test_refresh_follows_the_table(deployment: TokenDeployment, column: str, what: str, sent: str) -> None:
    """Each cell of the table above. Without a pair in the answer, nothing is stored or consumed."""
    answer, log, is_alarm = CELLS[sent, column]
    own, other, token = await prepared(deployment, what)
    others = await deployment.new_pair(other)
    deployment.forget_requests()
    stored = len(await deployment.stored_pairs(own))

    outcome = await deployment.refresh(token, presented(sent, own, other))

    assert (answer_of(outcome), outcome.raised_alarm) == (answer, is_alarm)
    assert len(await deployment.stored_pairs(own)) == stored + (answer == "pair")
    assert len(await deployment.alarms(own)) == is_alarm
    assert outcome.is_authenticated == log.endswith("proved")
    of_whom = None if log == "source" else other if log.startswith("other") else own
    assert outcome.client_id == (of_whom and of_whom.client_id)
    assert await logs(deployment, own, other) == [log]
    assert await deployment.is_alive(others.access_token)
    if column == "active" and answer != "pair":
        assert answer_of(await deployment.refresh(token)) == "pair"
    if column == "rotated":
        assert answer_of(await deployment.refresh(token)) == ("revoked" if is_alarm else "used")


@pytest.mark.parametrize("sent", ["nothing", "own id", "own key", "other id", "unknown id", "other key"])
@pytest.mark.parametrize("what", ["active", "rotated", "rotated, then revoked", "rotated, then expired"])
@in_loop
async def test_a_limit_never_prevents_the_alarm(deployment: TokenDeployment, what: str, sent: str) -> None:
    """A refused refresh is 429 and raises the alarm, but neither consumes its token nor counts."""
    own, other, token = await prepared(deployment, what)
    for key in (own, other):
        await deployment.set_ceiling(key, 1)
        await deployment.issue(key.presented)
    is_alarm = what == "rotated"
    stored = len(await deployment.stored_pairs(own))

    outcome = await deployment.refresh(token, presented(sent, own, other))

    assert (answer_of(outcome), outcome.raised_alarm) == ("RateLimited", is_alarm)
    assert outcome.decision.retry_after_s == 60
    assert len(await deployment.stored_pairs(own)) == stored
    assert len(await deployment.alarms(own)) == is_alarm
    again = await deployment.refresh(token, presented(sent, own, other))
    assert (answer_of(again), again.raised_alarm) == ("RateLimited", False)
    assert await logs(deployment, own, other) == ["proved", "other proved"]
    deployment.clock.advance(60)
    after = {"active": "pair", "rotated, then expired": "expired"}.get(what, "revoked")
    assert answer_of(await deployment.refresh(token)) == after


ISSUES = {
    "right key": ("pair", "proved"),
    "wrong secret": ("InvalidClient", "failed"),
    "old secret": ("InvalidClient", "failed"),
    "own id": ("InvalidClient", "failed"),
    "inactive": ("InvalidClient", "failed"),
    "malformed, own id": ("InvalidClient", "failed"),
    "unknown key": ("InvalidClient", "source"),
    "secret alone": ("InvalidClient", "source"),
    "malformed": ("InvalidClient", "source"),
    "nothing": ("InvalidClient", "source"),
    "empty secret": ("InvalidClient", "failed"),
    "mistyped id": ("InvalidClient", "source"),
}


@pytest.mark.parametrize("sent", ISSUES)
@in_loop
async def test_client_credentials_follow_the_table(deployment: TokenDeployment, sent: str) -> None:
    """The right secret of an active credential gets a pair; anything else is `invalid_client` and stores nothing."""
    answer, log = ISSUES[sent]
    own, other = await deployment.new_key(), await deployment.new_key()
    offered = {
        "right key": own.presented,
        "old secret": own.presented,
        "inactive": own.presented,
        "empty secret": PresentedCredentials(client_id=own.client_id, client_secret=""),
        "mistyped id": PresentedCredentials(client_id=own.client_id[:-1], client_secret=own.client_secret),
    }.get(sent) or presented(sent, own, other)
    if sent == "old secret":
        await deployment.rotate_secret(own)
    if sent == "inactive":
        await deployment.deactivate(own)

    outcome = await deployment.issue(offered)

    assert answer_of(outcome) == answer
    assert len(await deployment.stored_pairs(own)) == (answer == "pair")
    assert (outcome.is_authenticated, outcome.raised_alarm) == (answer == "pair", False)
    assert outcome.client_id == (None if log == "source" else own.client_id)
    assert await logs(deployment, own, other) == [log]


@in_loop
async def test_all_failed_authentications_get_the_same_text(deployment: TokenDeployment) -> None:
    """An unknown id, a wrong secret and an inactive credential, with both grants."""
    own, other = await deployment.new_key(), await deployment.new_key()
    await deployment.deactivate(other)
    wrong = presented("wrong secret", own, other)
    texts = {
        outcome.error and outcome.error.text
        for shown in (wrong, presented("unknown key", own, other), other.presented)
        for outcome in (await deployment.issue(shown), await deployment.refresh("svc_rt_", shown))
    }
    assert len(texts) == 1


@pytest.mark.parametrize("what", ["active", "expired", "unknown", "rotated", "revoked"])
@pytest.mark.parametrize("sent", ["nothing", "other id", "wrong secret"])
@in_loop
async def test_a_refusal_names_the_remedy_and_repeats_nothing(
    deployment: TokenDeployment, what: str, sent: str
) -> None:
    """Its text has only the characters of RFC 6749 section 5.2, and nothing that was sent or is stored."""
    own, other, token = await prepared(deployment, what)
    shown = presented(sent, own, other)
    outcome = await deployment.refresh(token, shown)
    if outcome.error is None:
        return
    assert DESCRIPTION.fullmatch(outcome.error.text)
    for secret in (token, own.client_id, other.client_id, shown.client_id, shown.client_secret):
        assert secret is None or secret not in outcome.error.text
    if sent == "nothing":
        assert "client_credentials" in outcome.error.text


@in_loop
async def test_the_error_after_a_reuse_explains_it(deployment: TokenDeployment) -> None:
    """Every token of the client was revoked, and `client_credentials` is the way on."""
    own, _, token = await prepared(deployment, "rotated")
    outcome = await deployment.refresh(token)
    assert outcome.error is not None
    for words in ("used already", "every access and refresh token", "revoked", "client_credentials"):
        assert words in outcome.error.text
    assert answer_of(await deployment.issue(own.presented)) == "pair"


@in_loop
async def test_a_pair_has_the_five_fields(deployment: TokenDeployment) -> None:
    """Section 2.2, with either grant; no token is ever issued twice."""
    key = await deployment.new_key()
    first = await deployment.new_pair(key)
    second = pair_of(await deployment.refresh(first.refresh_token))
    for pair in (first, second):
        assert ids.is_well_formed(pair.access_token, ids.ACCESS_TOKEN)
        assert ids.is_well_formed(pair.refresh_token, ids.REFRESH_TOKEN)
        assert (pair.token_type, pair.expires_in, pair.refresh_expires_in) == ("Bearer", 900, 2_592_000)
    tokens = {first.access_token, first.refresh_token, second.access_token, second.refresh_token}
    assert len(tokens) == 4


@in_loop
async def test_only_hashes_are_stored(deployment: TokenDeployment) -> None:
    """The SHA-256 of the whole token, with either grant."""
    key = await deployment.new_key()
    first = await deployment.new_pair(key)
    second = pair_of(await deployment.refresh(first.refresh_token))
    rows = await deployment.stored_pairs(key)
    assert [(row["access_hash"], row["refresh_hash"]) for row in rows] == [
        (ids.hash_secret(pair.access_token), ids.hash_secret(pair.refresh_token)) for pair in (first, second)
    ]


@in_loop
async def test_a_refresh_keeps_the_earlier_access_token(deployment: TokenDeployment) -> None:
    """Both access tokens are valid until their own expiry."""
    first = await deployment.new_pair(await deployment.new_key())
    deployment.clock.advance(ACCESS_TTL_S - 1)
    second = pair_of(await deployment.refresh(first.refresh_token))
    assert await deployment.are_alive(first, second) == [True, True]
    deployment.clock.advance(1)
    assert await deployment.are_alive(first, second) == [False, True]
    deployment.clock.advance(ACCESS_TTL_S - 1)
    assert await deployment.are_alive(first, second) == [False, False]


@in_loop
async def test_a_new_grant_keeps_earlier_tokens(deployment: TokenDeployment) -> None:
    """`client_credentials` never revokes: each worker of a partner may have its own pair."""
    key = await deployment.new_key()
    pairs = [await deployment.new_pair(key) for _ in range(3)]
    assert await deployment.are_alive(*pairs) == [True, True, True]
    successors = [pair_of(await deployment.refresh(pair.refresh_token)) for pair in pairs]
    assert await deployment.are_alive(*pairs, *successors) == [True] * 6


@in_loop
async def test_a_refresh_token_expires_at_the_exact_millisecond(deployment: TokenDeployment) -> None:
    """It is valid for exactly 30 days; its successor has 30 days of its own."""
    key = await deployment.new_key()
    first, late = await deployment.new_pair(key), await deployment.new_pair(key)
    deployment.clock.advance(REFRESH_TTL_S - 0.001)
    successor = pair_of(await deployment.refresh(first.refresh_token))
    deployment.clock.advance(0.001)
    assert answer_of(await deployment.refresh(late.refresh_token)) == "expired"
    deployment.clock.advance(REFRESH_TTL_S - 0.002)
    assert answer_of(await deployment.refresh(successor.refresh_token)) == "pair"


Revocation = Callable[[TokenDeployment, Key], Awaitable[object]]


async def reuse(deployment: TokenDeployment, key: Key) -> None:
    """Present a token of a new pair twice."""
    pair = await deployment.new_pair(key)
    await deployment.refresh(pair.refresh_token)
    assert (await deployment.refresh(pair.refresh_token)).raised_alarm


REVOCATIONS: dict[str, Revocation] = {
    "deactivate": TokenDeployment.deactivate,
    "rotate secret": TokenDeployment.rotate_secret,
    "revoke": TokenDeployment.revoke,
    "reuse": reuse,
}


@pytest.mark.parametrize("how", REVOCATIONS)
@in_loop
async def test_a_revocation_covers_every_token_of_one_client(deployment: TokenDeployment, how: str) -> None:
    """Access and refresh tokens, of any grant and age, from the next request on; no other client's."""
    key, other = await deployment.new_key(), await deployment.new_key()
    first, others = await deployment.new_pair(key), await deployment.new_pair(other)
    successor = pair_of(await deployment.refresh(first.refresh_token))
    latest = await deployment.new_pair(key)

    await REVOCATIONS[how](deployment, key)

    assert await deployment.are_alive(first, successor, latest) == [False, False, False]
    for pair in (first, successor, latest):
        assert answer_of(await deployment.refresh(pair.refresh_token)) == "revoked"
    assert await deployment.is_alive(others.access_token)
    assert answer_of(await deployment.refresh(others.refresh_token)) == "pair"


@pytest.mark.parametrize("how", REVOCATIONS)
@in_loop
async def test_nothing_restores_a_revoked_token(deployment: TokenDeployment, how: str) -> None:
    """Activation does not, nor does anything else an administrator can do to the key."""
    key = await deployment.new_key()
    pair = await deployment.new_pair(key)
    await REVOCATIONS[how](deployment, key)
    for act in (
        deployment.activate,
        deployment.deactivate,
        deployment.activate,
        deployment.revoke,
        deployment.rotate_secret,
    ):
        await act(key)
        assert not await deployment.is_alive(pair.access_token)
        assert answer_of(await deployment.refresh(pair.refresh_token)) == "revoked"


@in_loop
async def test_an_inactive_key_gets_nothing_until_it_is_active_again(deployment: TokenDeployment) -> None:
    """Deactivated: `invalid_client` for every request with its secret, and a new pair once it is active."""
    key = await deployment.new_key()
    token = (await deployment.new_pair(key)).refresh_token
    await deployment.deactivate(key)
    assert answer_of(await deployment.issue(key.presented)) == "InvalidClient"
    assert answer_of(await deployment.refresh(token, key.presented)) == "InvalidClient"
    assert answer_of(await deployment.refresh(token)) == "revoked"
    await deployment.activate(key)
    assert await deployment.is_alive((await deployment.new_pair(key)).access_token)


@in_loop
async def test_refresh_tokens_of_an_inactive_key_are_invalid(deployment: TokenDeployment) -> None:
    """The epoch is the right one: they are not consumed, not reused, and valid again with their key."""
    key = await deployment.new_key()
    used, active = await deployment.new_pair(key), await deployment.new_pair(key)
    await deployment.refresh(used.refresh_token)
    switch = sql("UPDATE clients SET is_active = :is_active WHERE client_id = :client_id")
    await deployment.database.write_one(switch, is_active=0, client_id=key.client_id)
    for pair in (used, active):
        outcome = await deployment.refresh(pair.refresh_token)
        assert (answer_of(outcome), outcome.raised_alarm) == ("revoked", False)
    await deployment.database.write_one(switch, is_active=1, client_id=key.client_id)
    assert answer_of(await deployment.refresh(active.refresh_token)) == "pair"


@in_loop
async def test_a_rotated_secret_replaces_the_old_one(deployment: TokenDeployment) -> None:
    """The next request needs it; an inactive key stays inactive."""
    old = await deployment.new_key()
    new = await deployment.rotate_secret(old)
    assert answer_of(await deployment.issue(old.presented)) == "InvalidClient"
    assert answer_of(await deployment.issue(new.presented)) == "pair"
    await deployment.deactivate(new)
    newest = await deployment.rotate_secret(new)
    assert answer_of(await deployment.issue(newest.presented)) == "InvalidClient"


@in_loop
async def test_revoking_tokens_keeps_the_secret_valid(deployment: TokenDeployment) -> None:
    """So the partner's program gets new tokens by itself."""
    key = await deployment.new_key()
    await deployment.revoke(key)
    assert await deployment.is_alive((await deployment.new_pair(key)).access_token)


@in_loop
async def test_an_alarm_is_raised_once(deployment: TokenDeployment) -> None:
    """The first reuse increments the epoch; the token is then of an old one, and merely revoked."""
    key = await deployment.new_key()
    pair = await deployment.new_pair(key)
    await deployment.refresh(pair.refresh_token)
    epoch = await deployment.epoch(key)
    outcomes = [await deployment.refresh(pair.refresh_token) for _ in range(3)]
    assert [answer_of(outcome) for outcome in outcomes] == ["used", "revoked", "revoked"]
    assert [outcome.raised_alarm for outcome in outcomes] == [True, False, False]
    assert await deployment.epoch(key) == epoch + 1
    assert len(await deployment.alarms(key)) == 1


@in_loop
async def test_any_ancestor_raises_the_alarm(deployment: TokenDeployment) -> None:
    """However long ago in the chain it was used."""
    pairs = [await deployment.new_pair(await deployment.new_key())]
    for _ in range(5):
        deployment.clock.advance(DAY_S)
        pairs.append(pair_of(await deployment.refresh(pairs[-1].refresh_token)))
    assert (await deployment.refresh(pairs[0].refresh_token)).raised_alarm
    assert answer_of(await deployment.refresh(pairs[-1].refresh_token)) == "revoked"
    assert not await deployment.is_alive(pairs[-1].access_token)


@pytest.mark.parametrize("how", [how for how in REVOCATIONS if how != "rotate secret"])
@in_loop
async def test_a_reuse_of_an_old_epoch_revokes_nothing(deployment: TokenDeployment, how: str) -> None:
    """A token from before the revocation is `invalid_grant`, whoever presents it."""
    key, other = await deployment.new_key(), await deployment.new_key()
    old = await deployment.new_pair(key)
    await deployment.refresh(old.refresh_token)
    await REVOCATIONS[how](deployment, key)
    await deployment.activate(key)
    since = await deployment.new_pair(key)
    epoch, alarms = await deployment.epoch(key), len(await deployment.alarms(key))
    for shown in (NO_CREDENTIALS, key.id_alone, key.presented, other.id_alone, other.presented):
        outcome = await deployment.refresh(old.refresh_token, shown)
        assert answer_of(outcome) in ("revoked", "another")
        assert not outcome.raised_alarm
    assert await deployment.is_alive(since.access_token)
    assert answer_of(await deployment.refresh(since.refresh_token)) == "pair"
    assert (await deployment.epoch(key), len(await deployment.alarms(key))) == (epoch, alarms)


@pytest.mark.parametrize("sent", ["nothing", "own key", "other key"])
@in_loop
async def test_an_alarm_is_audited(deployment: TokenDeployment, sent: str) -> None:
    """The entry has the client, the time, and the source and request of the reuse."""
    own, other, token = await prepared(deployment, "rotated")
    deployment.clock.advance(5)
    await deployment.refresh(token, presented(sent, own, other))
    (alarm,) = await deployment.alarms(own)
    assert (alarm["actor_kind"], alarm["actor_id"]) == ("client", own.client_id)
    assert (alarm["source_ip"], alarm["request_id"]) == (PROGRAM.source_ip, PROGRAM.request_id)
    assert alarm["at_ms"] == deployment.clock.now_ms()
    assert await deployment.alarms(other) == []


@in_loop
async def test_rotated_tokens_are_kept_until_they_expire(deployment: TokenDeployment) -> None:
    """Until then a reuse is noticed, whatever was deleted; afterwards the token is unknown."""
    key = await deployment.new_key()
    noticed, forgotten = await deployment.new_pair(key), await deployment.new_pair(key)
    for pair in (noticed, forgotten):
        await deployment.refresh(pair.refresh_token)
    deployment.clock.advance(REFRESH_TTL_S - 0.001)
    assert await deployment.delete_expired() == 0
    assert (await deployment.refresh(noticed.refresh_token)).raised_alarm
    deployment.clock.advance(0.001)
    assert await deployment.delete_expired() == 4
    assert answer_of(await deployment.refresh(forgotten.refresh_token)) == "unknown"


@in_loop
async def test_a_clock_set_back_never_revives_a_used_token(deployment: TokenDeployment) -> None:
    """A successor that expires before its predecessor is kept with it, because it proves the use."""
    key = await deployment.new_key()
    first = await deployment.new_pair(key)
    deployment.clock.jump(-60)
    await deployment.refresh(first.refresh_token)
    deployment.clock.advance(REFRESH_TTL_S + 59)
    await deployment.delete_expired()
    outcome = await deployment.refresh(first.refresh_token)
    assert (answer_of(outcome), outcome.raised_alarm) == ("used", True)
    deployment.clock.advance(1)
    assert await deployment.delete_expired() > 0
    await deployment.delete_expired()
    assert await deployment.stored_pairs(key) == []


@in_loop
async def test_one_source_has_one_limit_and_locks_out_no_other(deployment: TokenDeployment) -> None:
    """Proved and failed requests of a source count together; failures from elsewhere do not count here."""
    key = await deployment.new_key(per_minute=10)
    wrong = PresentedCredentials(client_id=key.client_id, client_secret="wrong")
    answers = [answer_of(await deployment.issue(wrong, source=ELSEWHERE)) for _ in range(11)]
    assert answers == ["InvalidClient"] * 10 + ["RateLimited"]
    answers = [answer_of(await deployment.issue(shown)) for shown in [wrong] * 3 + [key.presented] * 8]
    assert answers == ["InvalidClient"] * 3 + ["pair"] * 7 + ["RateLimited"]
    assert answer_of(await deployment.issue(wrong)) == "RateLimited"
    assert len(await deployment.stored_pairs(key)) == 7


@in_loop
async def test_unknown_clients_are_limited_to_300_a_minute(deployment: TokenDeployment) -> None:
    """The limit is one a source, for both grants together; a known client from the same source is not affected."""
    key = await deployment.new_key()
    stranger = PresentedCredentials(client_id=ids.new_id(ids.CLIENT_ID), client_secret=key.client_secret)
    unknown = ids.new_secret(ids.REFRESH_TOKEN)
    for _ in range(150):
        assert answer_of(await deployment.issue(stranger)) == "InvalidClient"
        assert answer_of(await deployment.refresh(unknown)) == "unknown"
    assert answer_of(await deployment.issue(stranger)) == "RateLimited"
    assert answer_of(await deployment.refresh(unknown)) == "RateLimited"
    assert answer_of(await deployment.issue(stranger, source=ELSEWHERE)) == "InvalidClient"
    assert answer_of(await deployment.issue(key.presented)) == "pair"


# The database refuses every new pair, as a full disk would, until ROOM_AGAIN.
NO_ROOM = [
    sql("""
    CREATE TRIGGER no_room BEFORE INSERT ON token_pairs BEGIN SELECT RAISE(ABORT, 'no room'); END  -- only: sqlite
    CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS  -- only: postgresql
    $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$  -- only: postgresql
    """),
    sql("""
    SELECT 1  -- only: sqlite
    CREATE TRIGGER no_room BEFORE INSERT ON token_pairs EXECUTE FUNCTION no_room()  -- only: postgresql
    """),
]
ROOM_AGAIN = sql("""
    DROP TRIGGER no_room  -- only: sqlite
    DROP FUNCTION no_room CASCADE  -- only: postgresql
""")


@in_loop
async def test_a_token_stays_valid_if_its_successors_cannot_be_stored(deployment: TokenDeployment) -> None:
    """Consuming and storing are one step, so a failure in between leaves the client its token."""
    pair = await deployment.new_pair(await deployment.new_key())
    for statement in NO_ROOM:
        await deployment.database.write_one(statement)
    try:
        with contextlib.suppress(sqlite3.IntegrityError):
            assert isinstance((await deployment.refresh(pair.refresh_token)).error, StoreUnavailable)
    finally:
        await deployment.database.write_one(ROOM_AGAIN)
    assert answer_of(await deployment.refresh(pair.refresh_token)) == "pair"


anything = st.none() | st.text() | st.text().map("svc_ci_".__add__) | st.text().map("svc_rt_".__add__)


@given(
    token=anything,
    shown=st.builds(PresentedCredentials, client_id=anything, client_secret=anything, is_malformed=st.booleans()),
)
@example(token="\ud800", shown=PresentedCredentials(client_id="\ud800", client_secret="\ud800"))
@example(token="\0", shown=PresentedCredentials(client_id="\0", client_secret="\0"))
@example(token="svc_rt_" + "é" * 49, shown=PresentedCredentials(client_id="svc_ci_" + "é" * 22, client_secret="é"))
def test_any_text_is_refused_without_a_server_error(
    shared_database: SharedDatabase, token: str | None, shown: PresentedCredentials
) -> None:
    """It replaces ids, secrets and tokens."""
    deployment = TokenDeployment.on(shared_database)

    async def acquire() -> None:
        assert answer_of(await deployment.issue(shown)) == "InvalidClient"
        answer = answer_of(await deployment.refresh(token or "", shown))
        assert answer == ("InvalidClient" if shown.has_credentials else "unknown")

    shared_database.run(acquire())


def test_the_table_is_complete() -> None:
    """Every way of presenting meets every kind of token."""
    assert set(CELLS) == set(itertools.product(PRESENTATIONS, TOKENS))
