"""Reading over HTTP: the query, cursors and look-ups (docs/interface.md section D6).

The order of refusals is tested in test_refusals.py, the content of pages in tests/unsubscribes/test_follow.py.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoplist.errors import BadRequest
from stoplist.maintenance.after_restore import after_restore
from stoplist.web.api.query import read_query
from tests.unsubscribes.partner import back, out
from tests.web.api.partner import NOTHING, ApiPartner, ReadQuery, addresses, refusal, text_of
from tests.web.application import Answer, Application

pytestmark = pytest.mark.interpreter

NUMBER = "+442079460018"
UNREPEATABLE_NAMES = ["x" * 41, "ann@x.org", "%C3%A4", "a%20b", "", "a.b"]


def with_records(partner: ApiPartner, count: int) -> ApiPartner:
    """Submit so many records, p0@x.org, p1@x.org and so on, and return the partner."""
    partner.submit(*(out(f"p{n}@x.org", partner.ago(9)) for n in range(count)), prefer="return=minimal")
    return partner


def check_bad_request(answer: Answer, text: str, parameter: str | None = None) -> None:
    extra = {} if parameter is None else {"parameter": parameter}
    assert (answer.status, refusal(answer)) == (400, {"error": "bad_request", **extra}), answer.body
    assert text in text_of(answer)


# Pages


def test_a_page_has_every_field(partner: ApiPartner) -> None:
    """Source: docs/interface.md section D6, for a page and its records."""
    submitted = partner.submit(out(" A@X.org", partner.ago(50), reason="complaint", source="a form"), all_groups=True)
    partner.clock.advance(1)
    flipped = partner.submit(back("b@x.org", partner.ago(40)))
    answer = partner.get()
    assert answer.header("content-type") == "application/json"
    assert answer.header("cache-control") == "no-store"
    page = answer.json()
    assert page.keys() == {"items", "next_cursor", "has_more", "state"}
    assert page["has_more"] is False
    assert (page["state"].keys(), page["state"]["seq"], page["state"]["records"]) == (
        {"seq", "records", "digest"},
        2,
        2,
    )
    zulu = "+00:00", "Z"
    assert page["items"] == [
        {
            "id": submitted.json()["items"][0]["id"],
            "org_slug": partner.slug,
            "group_id": None,
            "address": "a@x.org",
            "status": "unsubscribed",
            "reason": "complaint",
            "source": "a form",
            "occurred_at": partner.ago(1_050).replace(*zulu),
            "recorded_at": partner.ago(1_000).replace(*zulu),
            "seq": 1,
        },
        {
            "id": flipped.json()["items"][0]["id"],
            "org_slug": partner.slug,
            "group_id": partner.group_id,
            "address": "b@x.org",
            "status": "resubscribed",
            "reason": "consent",
            "source": None,
            "occurred_at": partner.ago(40).replace(*zulu),
            "recorded_at": partner.ago(0).replace(*zulu),
            "seq": 2,
        },
    ]


def test_a_page_holds_a_thousand_records_by_default(partner: ApiPartner) -> None:
    """`limit` may be one to ten thousand; every page has a cursor."""
    with_records(partner, 1_002)
    sizes = {query: len(addresses(partner.get(query))) for query in ("", "limit=1", "limit=1001", "limit=10000")}
    assert sizes == {"": 1_000, "limit=1": 1, "limit=1001": 1_001, "limit=10000": 1_002}
    first = partner.get().json()
    rest = partner.get({"cursor": first["next_cursor"], "limit": "2"}).json()
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert [record["seq"] for record in first["items"] + rest["items"]] == list(range(1, 1_003))
    last = partner.get({"cursor": rest["next_cursor"]}).json()
    assert (first["state"], rest["state"]["records"]) == (None, 1_002)
    assert last == {"items": [], "next_cursor": rest["next_cursor"], "has_more": False, "state": rest["state"]}


# Queries

BAD_QUERIES: dict[str, tuple[str, str, str | None]] = {
    "an unknown parameter": ("orgslug=acme", "takes org_slug, group_id, limit, cursor, address", "orgslug"),
    "one of another case": ("Org_slug=acme", "Unknown parameter", "Org_slug"),
    "one with a space": ("org_slug%20=acme", "Unknown parameter", None),
    "one of the longest name that is shown": (f"{'x' * 40}=1", "Unknown parameter", "x" * 40),
    "one without a value": ("address=a@x.org&status", "Unknown parameter", "status"),
    "all groups": ("all_groups=true", "Unknown parameter", "all_groups"),
    "a repeated group": ("group_id=a&group_id=a", "group_id is sent more than once", "group_id"),
    "a repeated cursor": ("cursor=a&limit=1&cursor=a", "cursor is sent more than once", "cursor"),
    "a repeated name in another spelling": ("limit=1&%6Cimit=1", "limit is sent more than once", "limit"),
    "a slug of 65 characters": (f"org_slug={'x' * 65}", "longer than 64 characters", "org_slug"),
    "a group of 65 characters": (f"group_id={'%C3%A4' * 65}", "longer than 64 characters", "group_id"),
    "a NUL": ("org_slug=a%00", "NUL", "org_slug"),
    "a NUL in a name": ("a%00=b", "NUL", None),
    "a NUL in an address": ("address=a%00@x.org", "NUL", "address"),
    "bytes that are no UTF-8": ("address=%ff", "percent-encoded UTF-8", "address"),
    "undecodable bytes after a good parameter": ("org_slug=a&limit=%ff", "percent-encoded UTF-8", "limit"),
    "an undecodable name": ("%ff=a", "percent-encoded UTF-8", None),
    "undecodable bytes of a name that is not shown": (f"{'x' * 41}=%ff", "percent-encoded UTF-8", None),
    "half of a pair": ("address=%ED%A0%80", "percent-encoded UTF-8", "address"),
    "what is not encoded": ("address=andr\u00e9@x.org", "percent-encoded UTF-8", "address"),
    "a thousand and one parameters": ("&".join(["address=a@x.org"] * 1_001), "too many parameters", None),
    "a look-up with a wrong limit": ("limit=0&address=a@x.org", "a whole number from 1 to 10000", "limit"),
    "a look-up with a cursor": ("address=a@x.org&cursor=", "takes no cursor", "cursor"),
    "a hundred and one addresses": ("&".join(["address=a@x.org"] * 101), "more than 100 times", "address"),
    **{f"the unknown parameter {name!r}": (f"{name}=1", "Unknown parameter", None) for name in UNREPEATABLE_NAMES},
}
BAD_LIMITS = [
    "0",
    "-1",
    "10001",
    "01",
    "0010",
    "%30%31",
    "",
    "x",
    "1.0",
    "1e3",
    "0x10",
    "1_0",
    "+5",
    " 5",
    "5%20",
    "%EF%BC%95",
    "%D9%A5",
    "9" * 30,
]


@pytest.mark.parametrize(("query", "text", "parameter"), BAD_QUERIES.values(), ids=BAD_QUERIES)
def test_an_invalid_query_is_refused(
    partner_on_sqlite: ApiPartner, query: str, text: str, parameter: str | None
) -> None:
    """A misspelt name must not answer for another organization; an unknown name is repeated only if harmless."""
    answer = partner_on_sqlite.get(query)
    check_bad_request(answer, text, parameter)
    assert all(word not in answer.body.decode() for word in ("ann@", "a@x", "x" * 41))
    assert partner_on_sqlite.stored() == NOTHING


@pytest.mark.parametrize("limit", BAD_LIMITS)
def test_a_limit_is_a_whole_number_from_one_to_ten_thousand(partner_on_sqlite: ApiPartner, limit: str) -> None:
    """It has ASCII digits only."""
    check_bad_request(partner_on_sqlite.get(f"limit={limit}"), "a whole number from 1 to 10000", "limit")


def test_a_query_may_be_spelt_in_many_ways(partner: ApiPartner) -> None:
    """Names and values percent-encoded or not, and empty parts."""
    with_records(partner, 3)
    slug = "".join(f"%{ord(letter):02X}" for letter in partner.slug)
    for query in (
        f"org_slug={partner.slug}",
        f"%6Frg_slug={slug}",
        f"&&org%5Fslug={slug}&",
        f"limit=3&&group_id={partner.group_id}",
        f"org_slug={partner.slug}&group_id={partner.group_id}&limit=3",
    ):
        assert addresses(partner.get(query)) == ["p0@x.org", "p1@x.org", "p2@x.org"]


def test_a_query_selects_the_organization_and_group(partner: ApiPartner) -> None:
    """A group gets its own records and the all-groups ones."""
    other = partner.new_group("Reminders")
    partner.submit(out("d@x.org"))
    partner.submit(out("o@x.org"), group_id=other)
    partner.submit(out("a@x.org"), all_groups=True)
    found = {name: addresses(partner.get({"group_id": name})) for name in (partner.group_id, other)}
    assert found == {partner.group_id: ["d@x.org", "a@x.org"], other: ["o@x.org", "a@x.org"]}
    assert addresses(partner.get({"org_slug": partner.slug})) == ["d@x.org", "o@x.org", "a@x.org"]


@given(st.text("abcdefgiklmnorsup_=&%+;01 \u00e4\0", max_size=40) | st.binary().map(quote))
def test_any_query_is_read_or_refused(text: str) -> None:
    try:
        query = read_query(text.encode())
    except BadRequest:
        return
    assert 1 <= query.limit <= 10_000


_part = st.text("aX.-_+ %4", max_size=5)


@given(st.builds("{}{}{}".format, _part, st.sampled_from(["@", "%40", "@@", ""]), _part))
@example("a+b@x.org")
def test_an_address_reads_alike_alone_and_among_others(value: str) -> None:
    """A query of one plain address is read by a pattern, any other query piece by piece."""

    def read(text: str) -> object:
        try:
            return read_query(text.encode())
        except BadRequest as error:
            return error.text

    assert read(f"address={value}") == read(f"&address={value}")


# Cursors


def altered(cursor: str, at: int) -> str:
    return cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]


INVALID_CURSORS: dict[str, Callable[[str], str]] = {
    "nothing": lambda _: "",
    "one that is cut": lambda cursor: cursor[:-1],
    "one that goes on": lambda cursor: cursor + "A",
    "one with another number": lambda cursor: altered(cursor, 10),
    "one with another mark": lambda cursor: altered(cursor, 31),
    "one in capitals": lambda cursor: cursor.swapcase(),
    "one with spaces around": lambda cursor: f" {cursor} ",
    "a number": lambda _: "1",
    "no ASCII": lambda cursor: "\u0663" * len(cursor),
    "something long": lambda cursor: cursor * 100,
}


def check_refused(answer: Answer) -> None:
    """Check the one answer to every unusable cursor, which says how to continue."""
    assert (answer.status, refusal(answer)) == (400, {"error": "invalid_cursor"}), answer.body
    assert "Read anew without a cursor" in text_of(answer)


@pytest.mark.parametrize("other", INVALID_CURSORS.values(), ids=INVALID_CURSORS)
def test_an_invalid_cursor_is_refused(partner: ApiPartner, other: Callable[[str], str]) -> None:
    """It is read neither as the nearest valid one nor as none."""
    cursor = with_records(partner, 2).get("limit=1").json()["next_cursor"]
    assert addresses(partner.get({"cursor": cursor})) == ["p1@x.org"]
    check_refused(partner.get({"cursor": other(cursor)}))


def test_a_cursor_is_bound_to_its_parameters(partner: ApiPartner) -> None:
    """It is not valid for another organization, channel or group, nor for none if it is for a group."""
    cursor = with_records(partner, 2).get("limit=1").json()["next_cursor"]
    of_group = partner.get({"group_id": partner.group_id, "limit": "1"}).json()["next_cursor"]
    stranger = ApiPartner.new(partner.app, partner.clock)
    for _ in range(2):
        check_refused(stranger.get({"cursor": cursor}))
        stranger.get()  # opens its feed
    for channel in ("sms", "phone"):
        for _ in range(2):
            check_refused(partner.get({"cursor": cursor}, channel=channel))
            partner.get(channel=channel)
    check_refused(partner.get({"cursor": cursor, "group_id": partner.group_id}))
    check_refused(partner.get({"cursor": of_group}))
    check_refused(partner.get({"cursor": of_group, "group_id": partner.new_group("Reminders")}))
    assert addresses(partner.get({"cursor": cursor, "limit": "7"})) == ["p1@x.org"]
    assert addresses(partner.get({"cursor": of_group, "group_id": partner.group_id})) == ["p1@x.org"]


def test_a_refused_cursor_opens_no_feed(partner: ApiPartner) -> None:
    """A request that is refused stores nothing."""
    check_refused(partner.get({"cursor": "A" * 32}))
    assert partner.stored() == NOTHING


def test_cursors_are_refused_after_a_restore(partner: ApiPartner) -> None:
    """Cursors of the previous generation are refused, also if nothing has changed since."""
    with_records(partner, 2)
    group = {"group_id": partner.group_id}
    cursors = [partner.get(query).json()["next_cursor"] for query in ({}, group)]
    partner.app.administer(after_restore)
    partner = partner.colleague("read")  # the previous tokens are revoked
    for query, cursor in zip(({}, group), cursors, strict=True):
        check_refused(partner.get({**query, "cursor": cursor}))
        assert addresses(partner.get(query)) == ["p0@x.org", "p1@x.org"]


def test_secret_keys_are_rotated_without_refusing_cursors(partner: ApiPartner) -> None:
    """The new key is added behind, then put in front, then the old one is dropped; both are accepted meanwhile."""
    old, new = "k" * 32, "n" * 32

    def with_keys(*secret_keys: str) -> ApiPartner:
        return partner.at(Application(partner.app.run, partner.app.database, partner.clock, secret_keys=secret_keys))

    cursor = with_records(partner, 2).get("limit=1").json()["next_cursor"]
    assert with_keys(old, new).get("limit=1").json()["next_cursor"] == cursor
    renewed = with_keys(new, old).get("limit=1").json()["next_cursor"]
    assert renewed != cursor
    for known in ((old, new), (new, old)):
        for one in (cursor, renewed):
            assert addresses(with_keys(*known).get({"cursor": one})) == ["p1@x.org"]
    check_refused(with_keys(new).get({"cursor": cursor}))
    check_refused(with_keys(old).get({"cursor": renewed}))


# Look-ups


def test_a_look_up_answers_in_one_page(partner: ApiPartner) -> None:
    """It is by `seq`, without a cursor, and has the canonical form of each address in the order requested."""
    with_records(partner, 5)
    requested = ["p3@x.org", " P1@X.ORG\t", "nobody@x.org", "p3@x.org"]
    answer = partner.get([("address", address) for address in requested])
    assert addresses(answer) == ["p1@x.org", "p3@x.org"]
    page = answer.json()
    assert (page.pop("next_cursor"), page.pop("has_more")) == (None, False)
    assert page.pop("looked_up") == ["p3@x.org", "p1@x.org", "nobody@x.org", "p3@x.org"]
    assert page.keys() == {"items"}


def test_a_limit_changes_nothing_in_a_look_up(partner: ApiPartner) -> None:
    """Clients generated from the description send the default of every parameter."""
    with_records(partner, 3)
    query = [("address", "p1@x.org"), ("address", "p2@x.org")]
    without = partner.get(query)
    assert addresses(without) == ["p1@x.org", "p2@x.org"]
    for limit in ("1", "1000", "10000"):
        assert partner.get([*query, ("limit", limit)]).body == without.body


def test_a_look_up_takes_a_hundred_addresses(partner: ApiPartner) -> None:
    """One more is refused, see BAD_QUERIES."""
    with_records(partner, 120)
    requested = [f"p{n}@x.org" for n in range(119, 19, -1)]
    answer = partner.get([("address", address) for address in requested])
    assert addresses(answer) == sorted(requested, key=lambda address: int(address[1:-6]))
    assert answer.json()["looked_up"] == requested


def test_a_look_up_opens_no_feed(partner: ApiPartner) -> None:
    assert partner.get("address=ann@x.org").json()["looked_up"] == ["ann@x.org"]
    assert partner.stored() == NOTHING


def test_a_look_up_in_a_group_includes_all_groups_records(partner: ApiPartner) -> None:
    """Its own record and the all-groups one, and no other group's."""
    other = partner.new_group("Reminders")
    partner.submit(out("ann@x.org"), group_id=other)
    partner.submit(out("ann@x.org"), all_groups=True)
    partner.submit(out("ann@x.org"))
    records: dict[str, list[Any]] = {
        name: partner.get({"address": "ann@x.org", **query}).json()["items"]
        for name, query in {"all": {}, "one": {"group_id": other}}.items()
    }
    assert [record["group_id"] for record in records["all"]] == [other, None, partner.group_id]
    assert [record["group_id"] for record in records["one"]] == [other, None]


LOOK_UPS: list[tuple[str, str, str]] = [
    ("email", "ANN%2Btag%40x.org", "ann+tag@x.org"),
    ("email", "ann%2btag@x.org", "ann+tag@x.org"),
    ("email", "%20ann@x.org%0D%0A", "ann@x.org"),
    ("email", "+ann@x.org+", "ann@x.org"),
    ("email", "andr%C3%A9@b%C3%BCcher.example", "andr\u00e9@xn--bcher-kva.example"),
    ("sms", "%2B44 (0)20 7946-0018".replace(" ", "%20"), NUMBER),
    ("phone", "%2B44+(0)20+7946+0018", NUMBER),
]


@pytest.mark.parametrize(("channel", "text", "canonical"), LOOK_UPS)
def test_an_address_may_be_looked_up_in_any_spelling(
    partner: ApiPartner, channel: str, text: str, canonical: str
) -> None:
    """Source: docs/interface.md section D7; percent-encoded."""
    partner.submit(out(canonical), channel=channel)
    answer = partner.get(f"address={text}", channel=channel)
    assert (addresses(answer), answer.json()["looked_up"]) == ([canonical], [canonical])


BAD_LOOK_UPS: dict[str, tuple[str, ReadQuery, bool]] = {
    "no address": ("email", "address=nobody", False),
    "an empty one": ("email", "address=", False),
    "one among good ones": ("email", "address=a@x.org&address=nobody&address=b@x.org", False),
    "a plus that became a space": ("email", "address=ann+tag@x.org", False),
    "a plus before a number": ("sms", f"address={NUMBER}", True),
    "a plus among encoded ones": ("phone", f"address=%2B442079460018&address={NUMBER}", True),
    "a number without one": ("sms", "address=442079460018", False),
    "a number with letters": ("phone", {"address": "+44 2079 CALL-ME"}, False),
    "an e-mail address for a number": ("sms", "address=ann@x.org", False),
}


@pytest.mark.parametrize(("channel", "query", "names_plus"), BAD_LOOK_UPS.values(), ids=BAD_LOOK_UPS)
def test_an_invalid_address_is_refused_and_not_repeated(
    partner_on_sqlite: ApiPartner, channel: str, query: ReadQuery, *, names_plus: bool
) -> None:
    """If a phone number begins with a space, the text says that + must be sent as %2B."""
    answer = partner_on_sqlite.get(query, channel=channel)
    check_bad_request(answer, "", "address")
    assert ("%2B" in text_of(answer)) is names_plus
    assert all(word not in answer.body.decode() for word in ("nobody", "ann", "7946", "CALL"))


def test_a_cursor_is_valid_for_another_key(partner: ApiPartner) -> None:
    """A cursor is bound to the parameters, not to the key."""
    cursor = with_records(partner, 2).get("limit=1").json()["next_cursor"]
    colleague = partner.colleague("read")
    assert addresses(colleague.get({"cursor": cursor})) == ["p1@x.org"]
    assert refusal(colleague.submit(out("ann@x.org"))) == {"error": "insufficient_scope"}
