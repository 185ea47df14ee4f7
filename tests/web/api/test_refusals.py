"""Every refusal of the six operations, in the order of docs/interface.md section D4.

A fault changes one aspect of a valid request, so that any faults can be combined in one request.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from stoplist import ids
from stoplist.oauth.ceilings import set_ceilings
from stoplist.organizations.groups import create_group, retire_group
from stoplist.organizations.organizations import close_organization
from tests.builders import contents, make_organization
from tests.constants import HIGH_LIMIT
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.unsubscribes.partner import back, out, written
from tests.web.api.partner import FEED_TABLES, JSON, gzipped, path, refusal, text_of
from tests.web.application import Answer, Application

KEYS: dict[str, tuple[str, ...]] = {
    "all": ("read", "unsubscribe", "resubscribe"),
    "reader": ("read",),
    "unsubscriber": ("unsubscribe",),
    "resubscriber": ("resubscribe",),
}


NO_AT = "The e-mail address has no @: one must stand between its name and its domain."


class RequestTargets:
    """Organizations, groups and keys of every kind that a request can name.

    `home` has a default group, `bare` and `closed` have none, `closed` is closed, and no key here is for `foreign`.
    """

    def __init__(self, app: Application, clock: FakeClock) -> None:
        self.app, self.clock = app, clock
        self.groups: dict[str, str] = {"unknown": ids.new_id(ids.GROUP_ID), "malformed": "newsletter"}
        for slug in ("home", "bare", "closed", "foreign"):
            app.run(make_organization(app.database, clock, slug))
            self.groups[slug] = self._group(slug, is_default=slug == "home")
        self.groups["retired"] = self._group("bare", is_default=True)
        app.administer(retire_group, group_id=self.groups["retired"])
        ours = {"organizations": ["home", "bare", "closed"], "default_organization": "home"}
        self.tokens = {name: self._token(HIGH_LIMIT, permissions=frozenset(may), **ours) for name, may in KEYS.items()}
        for slug in ("bare", "closed"):
            self.tokens[f"of {slug}"] = self._token(
                HIGH_LIMIT, permissions=frozenset(KEYS["all"]), **{**ours, "default_organization": slug}
            )
        app.administer(close_organization, slug="closed")
        self.tokens["unknown"] = ids.new_secret(ids.ACCESS_TOKEN)
        self.tokens["exhausted"] = self._token(1, organizations=["foreign"], permissions=frozenset(("resubscribe",)))
        app.call(self.tokens["exhausted"])

    def _group(self, slug: str, *, is_default: bool) -> str:
        name = "Default" if is_default else "Other"
        return self.app.administer(create_group, org_slug=slug, name=name, is_default=is_default).group_id

    def _token(self, per_minute: int, **options: Any) -> str:
        key = self.app.new_key(**options)
        self.app.administer(set_ceilings, client_id=key.client_id, token_per_minute=None, api_per_minute=per_minute)
        return str(self.app.pair(key)["access_token"])

    def stored(self) -> Any:
        return self.app.run(contents(self.app.database, *FEED_TABLES))


@pytest.fixture(scope="module")
def scenario(shared_database: SharedDatabase) -> RequestTargets:
    clock = FakeClock()
    return RequestTargets(Application(shared_database.run, shared_database.database, clock), clock)


@dataclass
class RequestDraft:
    """A valid request, until a fault changes it."""

    scenario: RequestTargets
    method: str = "POST"
    token: str = "all"
    scheme: str = "https"
    path: str = path()
    query: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=lambda: dict([JSON]))
    fields: dict[str, Any] = field(default_factory=dict)
    encode: Callable[[bytes], bytes] = bytes

    def __post_init__(self) -> None:
        if self.method == "POST":
            self.fields["items"] = [out("ann@x.org"), back("bob@x.org", written(self.scenario.clock.now_ms()))]

    def name(self, **names: str) -> None:
        """Name this organization or group in the body or the query."""
        if self.method == "POST":
            self.fields.update(names)
            return
        others = [part for part in self.query if part.partition("=")[0] not in names]
        self.query = [*others, *(f"{name}={text}" for name, text in names.items())]

    def send(self) -> Answer:
        body = self.encode(json.dumps(self.fields).encode()) if self.fields else b""
        headers = [("authorization", f"Bearer {self.scenario.tokens[self.token]}"), *self.headers.items()]
        target = "?".join(filter(None, (self.path, "&".join(self.query))))
        return self.scenario.app.request(self.method, target, headers=list(headers), body=body, scheme=self.scheme)


class Fault(NamedTuple):
    """A change of a request, and the refusal: status, code, a part of the text, and the extra fields."""

    change: Callable[[RequestDraft], None]
    status: int
    code: str
    text: str
    extra: Mapping[str, Any] = MappingProxyType({})
    """A value in angle brackets stands for the id of that group."""


def setting(**values: Any) -> Callable[[RequestDraft], None]:
    def change(request: RequestDraft) -> None:
        for name, value in values.items():
            setattr(request, name, value)

    return change


def header(name: str, text: str) -> Callable[[RequestDraft], None]:
    return lambda request: request.headers.update({name: text})


def body_field(name: str, value: Any) -> Callable[[RequestDraft], None]:
    return lambda request: request.fields.update({name: value})


def query(*parts: str) -> Callable[[RequestDraft], None]:
    return lambda request: request.query.extend(parts)


def query_only(*parts: str) -> Callable[[RequestDraft], None]:
    """Replace all of the query but the organization and the group."""

    def change(request: RequestDraft) -> None:
        request.query = [part for part in request.query if part.startswith(("org_slug=", "group_id="))]
        request.query.extend(parts)

    return change


def naming(**names: str) -> Callable[[RequestDraft], None]:
    """Name an organization, or a group by its name in `Scenario.groups`."""

    def change(request: RequestDraft) -> None:
        request.name(**{n: request.scenario.groups[text] if n == "group_id" else text for n, text in names.items()})

    return change


def item(value: Any) -> Callable[[RequestDraft], None]:
    return lambda request: request.fields["items"].append(value)


def both_groups(request: RequestDraft) -> None:
    request.fields.setdefault("group_id", request.scenario.groups["home"])
    request.fields["all_groups"] = True


def cursor_of(slug: str) -> Callable[[RequestDraft], None]:
    def change(request: RequestDraft) -> None:
        follow = RequestDraft(request.scenario, "GET", query=[f"org_slug={slug}"])
        request.query.append(f"cursor={follow.send().json()['next_cursor']}")

    return change


def bad_request(change: Callable[[RequestDraft], None], text: str, parameter: str | None = None) -> Fault:
    return Fault(change, 400, "bad_request", text, {} if parameter is None else {"parameter": parameter})


def no_organization(change: Callable[[RequestDraft], None], slug: str) -> Fault:
    return Fault(change, 403, "unauthorized_organization", "organization", {"org_slug": slug})


def no_group(change: Callable[[RequestDraft], None], group: str) -> Fault:
    return Fault(change, 403, "unauthorized_organization", "group", {"group_id": f"<{group}>"})


def bad_item(value: Any, text: str) -> Fault:
    error = {"item_index": 2, "item_error": text}
    return Fault(item(value), 400, "invalid_item", "1 of 3 items", {**error, "item_errors": [error]})


def no_scope(token: str, permission: str) -> Fault:
    return Fault(setting(token=token), 403, "insufficient_scope", f"lacks the permission {permission}")


BEFORE: dict[str, list[Fault]] = {
    "HTTPS": [bad_request(setting(scheme="http"), "HTTPS")],
    "token": [Fault(setting(token="unknown"), 401, "invalid_token", "unknown, expired or revoked")],
    "limit": [Fault(setting(token="exhausted"), 429, "rate_limited", "the limit is 1 in 60 seconds")],
    "route": [
        Fault(setting(path=path("fax")), 404, "not_found", "nothing at this path"),
        Fault(setting(method="PUT"), 405, "method_not_allowed", "Ask with GET, submit with POST"),
    ],
}
ORGANIZATION = [
    no_organization(naming(org_slug="nowhere"), "nowhere"),
    no_organization(naming(org_slug="foreign"), "foreign"),
    no_organization(naming(org_slug="closed"), "closed"),
    no_organization(naming(org_slug="Not-a-slug!"), "Not-a-slug!"),
    no_organization(naming(org_slug=""), ""),
    no_organization(naming(org_slug="x" * 64), "x" * 64),
]
GROUP = [no_group(naming(group_id=group), group) for group in ("unknown", "malformed", "foreign", "closed", "retired")]
CLOSED = ORGANIZATION[2]
OUTSIDE = [no_group(naming(org_slug="home", group_id="bare"), "bare")]

SUBMIT: dict[str, list[Fault]] = {
    **BEFORE,
    "shape": [
        bad_request(header("content-type", "text/plain"), "content type must be application/json"),
        bad_request(header("content-type", "application/x-www-form-urlencoded"), "application/json"),
        bad_request(setting(headers={}), "application/json"),
        bad_request(header("content-encoding", "br"), "must be gzip"),
        bad_request(header("content-encoding", "gzip, gzip"), "must be gzip"),
        bad_request(header("content-encoding", "gzip"), "not a whole gzip"),
        bad_request(header("content-length", str(8 << 20 | 1)), "larger than 8 MiB"),
        bad_request(query("org_slug=home"), "no query parameters"),
        bad_request(setting(encode=lambda body: body + b"}"), "not JSON"),
        bad_request(setting(encode=lambda body: body[:-1]), "not JSON"),
        bad_request(setting(encode=lambda body: body.replace(b"ann", b"\xff")), "not JSON"),
        bad_request(setting(encode=lambda body: b"[" + body + b"]"), "must be an object that holds the items"),
        bad_request(setting(encode=lambda body: body + b" " * (8 << 20)), "larger than 8 MiB"),
        bad_request(body_field("orgslug", "home"), "unknown field: it takes org_slug", "orgslug"),
        bad_request(body_field("ann@x.org", 1), "unknown field"),
        bad_request(body_field("org_slug", "x" * 65), "longer than 64 characters", "org_slug"),
        bad_request(body_field("org_slug", "ho\0me"), "NUL", "org_slug"),
        bad_request(body_field("org_slug", "\ud800"), "must be text", "org_slug"),
        bad_request(body_field("org_slug", 1), "must be text", "org_slug"),
        bad_request(body_field("group_id", "grp_\0"), "NUL", "group_id"),
        bad_request(body_field("group_id", "x" * 65), "longer than 64 characters", "group_id"),
        bad_request(body_field("group_id", ["x"]), "must be text", "group_id"),
        bad_request(body_field("all_groups", "true"), "true or false", "all_groups"),
        bad_request(body_field("all_groups", 1), "true or false", "all_groups"),
        bad_request(both_groups, "not both", "all_groups"),
    ],
    "permission": [
        no_scope("reader", "resubscribe and unsubscribe"),
        no_scope("unsubscriber", "resubscribe"),
        no_scope("resubscriber", "unsubscribe"),
    ],
    "organization": ORGANIZATION,
    "group": [*GROUP, *OUTSIDE],
    "default group": [
        Fault(naming(org_slug="bare"), 400, "default_group_not_configured", "no default group", {"org_slug": "bare"})
    ],
    "items": [
        bad_item(out("nobody"), NO_AT),
        bad_item({"address": 5}, "address must be text."),
        bad_item(5, "The item must be an object with an address."),
        bad_item(out("ann@x.org", source="a\0b"), "source contains a NUL character: send text alone."),
        bad_item(
            out("ann@x.org", source="\udfff"), "source contains half of a surrogate pair: send text in UTF-8."
        ),
    ],
}  # fmt: skip
READ: dict[str, list[Fault]] = {
    **BEFORE,
    "shape": [
        bad_request(query("orgslug=home"), "Unknown parameter: this takes org_slug", "orgslug"),
        bad_request(query("all_groups=true"), "Unknown parameter", "all_groups"),
        bad_request(query("org_slug=a", "org_slug=b"), "org_slug is sent more than once", "org_slug"),
        bad_request(query_only("limit=1", "limit=1"), "limit is sent more than once", "limit"),
        bad_request(query_only("limit=0"), "from 1 to 10000", "limit"),
        bad_request(query_only("limit=10001"), "from 1 to 10000", "limit"),
        bad_request(query_only("address=a@x.org", "limit=0"), "from 1 to 10000", "limit"),
        bad_request(query_only("address=nobody", "cursor=x"), "takes no cursor", "cursor"),
        bad_request(query_only(*["address=nobody"] * 101), "more than 100 times", "address"),
        bad_request(query_only("cursor=%00"), "NUL", "cursor"),
        bad_request(query_only("cursor=%ff"), "percent-encoded UTF-8", "cursor"),
        bad_request(query_only("cursor=%ED%A0%80"), "percent-encoded UTF-8", "cursor"),
    ],
    "permission": [no_scope("unsubscriber", "read"), no_scope("resubscriber", "read")],
    "organization": ORGANIZATION,
    "group": [*GROUP, *OUTSIDE],
    "address or cursor": [
        bad_request(query("address=nobody"), NO_AT, "address"),
        bad_request(query("address=a@x.org", "address="), "is empty", "address"),
        Fault(query("cursor="), 400, "invalid_cursor", "Read anew"),
        Fault(query("cursor=abc"), 400, "invalid_cursor", "Read anew"),
        Fault(cursor_of("bare"), 400, "invalid_cursor", "Read anew"),
    ],
}
ORDERS = {"POST": SUBMIT, "GET": READ}
SINGLE = [(method, step) for method, order in ORDERS.items() for step in order]
PAIRS = [(method, *pair) for method, order in ORDERS.items() for pair in itertools.combinations(order, 2)]


def answer_to(scenario: RequestTargets, method: str, *faults: Fault) -> Answer:
    """Return the answer to a request with these faults; if two change the same value, the first one wins."""
    request = RequestDraft(scenario, method)
    for fault in reversed(faults):
        fault.change(request)
    return request.send()


def check_refused(scenario: RequestTargets, answer: Answer, fault: Fault) -> None:
    extra = {
        name: scenario.groups[value[1:-1]] if isinstance(value, str) and value.startswith("<") else value
        for name, value in fault.extra.items()
    }
    assert (answer.status, refusal(answer)) == (fault.status, {"error": fault.code, **extra}), fault
    assert fault.text in text_of(answer)
    assert "ann@x.org" not in answer.body.decode()


def check_nothing_stored(scenario: RequestTargets, before: Any) -> None:
    assert scenario.stored() == before
    assert all(before[table] == [] for table in FEED_TABLES if table != "feeds")


@pytest.fixture
def before(scenario: RequestTargets) -> Any:
    """The stored rows at the beginning of a test, after opening the feed whose cursor the tests use."""
    RequestDraft(scenario, "GET", query=["org_slug=bare"]).send()
    return scenario.stored()


def test_requests_without_a_fault_are_answered(scenario: RequestTargets) -> None:
    """The requests of the other tests are valid apart from their faults."""
    request = RequestDraft(scenario)
    request.fields["items"] = [{"address": "nobody"}]
    request.headers["prefer"] = "handling=lenient"
    assert (request.send().status, RequestDraft(scenario, "GET", query=["org_slug=bare"]).send().status) == (200, 200)


@pytest.mark.parametrize(("method", "step"), SINGLE)
def test_every_fault_is_named(scenario: RequestTargets, before: Any, method: str, step: str) -> None:
    """Status, code, extra fields and text; nothing is stored, and no feed is opened."""
    for fault in ORDERS[method][step]:
        answer = answer_to(scenario, method, fault)
        check_refused(scenario, answer, fault)
    check_nothing_stored(scenario, before)


@pytest.mark.parametrize(("method", "earlier", "later"), PAIRS)
def test_of_two_faults_the_earlier_is_named(
    scenario: RequestTargets, before: Any, method: str, earlier: str, later: str
) -> None:
    """The answer is the same as if it were alone; nothing is stored."""
    order = ORDERS[method]
    # Each fault of either step is combined with some fault of the other.
    size = max(len(order[earlier]), len(order[later]))
    cycles = zip(itertools.cycle(order[earlier]), itertools.cycle(order[later]), strict=False)
    for first, second in itertools.islice(cycles, size):
        check_refused(scenario, answer_to(scenario, method, first, second), first)
    check_nothing_stored(scenario, before)


@pytest.mark.parametrize("method", ORDERS)
def test_of_all_faults_at_once_the_first_is_named(scenario: RequestTargets, before: Any, method: str) -> None:
    """Removed one after the other, they appear in their order."""
    faults = [faults[0] for faults in ORDERS[method].values()]
    for at, fault in enumerate(faults):
        check_refused(scenario, answer_to(scenario, method, *faults[at:]), fault)
    check_nothing_stored(scenario, before)


# Beyond the table


@pytest.mark.parametrize(("method", "challenge"), [
    ("POST", 'Bearer realm="stoplist", error="insufficient_scope"'),
    ("GET", 'Bearer realm="stoplist", error="insufficient_scope"'),
])  # fmt: skip
def test_a_missing_permission_comes_with_a_challenge(scenario: RequestTargets, method: str, challenge: str) -> None:
    """RFC 6750 section 3.1."""
    (fault, *_) = ORDERS[method]["permission"]
    assert answer_to(scenario, method, fault).header("www-authenticate") == challenge


def test_a_refused_method_comes_with_allow(scenario: RequestTargets) -> None:
    """RFC 9110 section 15.5.6."""
    assert answer_to(scenario, "POST", BEFORE["route"][1]).header("allow") == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("token", "items", "code"),
    [
        ("unsubscriber", [{"address": 5, "status": "resubscribed"}], "insufficient_scope"),
        ("unsubscriber", [{"address": "nobody", "status": "resubscribed"}], "insufficient_scope"),
        ("unsubscriber", [{"address": 5}], "invalid_item"),
        ("unsubscriber", [{"address": "a@x.org", "status": "gone"}], "invalid_item"),
        ("resubscriber", [{"address": 5}], "insufficient_scope"),
        ("resubscriber", [{"address": "\ud800", "status": None}], "insufficient_scope"),
        ("resubscriber", [5], "insufficient_scope"),
        ("resubscriber", [1, {"address": "a@x.org", "status": "resubscribed"}], "insufficient_scope"),
        ("resubscriber", [{"address": "a@x.org", "status": "gone"}], "insufficient_scope"),
        ("unsubscriber", [5], "invalid_item"),
        ("reader", [5], "insufficient_scope"),
        ("reader", [{"address": "a@x.org", "status": 5}], "insufficient_scope"),
    ],
)
@pytest.mark.parametrize("prefer", [None, "handling=lenient"])
def test_a_bad_item_needs_its_permission_too(
    scenario: RequestTargets, before: Any, token: str, items: list[Any], code: str, prefer: str | None
) -> None:
    """An item whose status cannot be read needs the permission for an opt-out."""
    request = RequestDraft(scenario, token=token, fields={})
    request.fields["items"] = items
    request.headers |= {} if prefer is None else {"prefer": prefer}
    answer = request.send()
    expected = None if prefer and code == "invalid_item" else code
    assert answer.json().get("error") == expected, answer.body
    check_nothing_stored(scenario, before)


def test_leniency_applies_to_items_only(scenario: RequestTargets, before: Any) -> None:
    """Earlier faults are refused as without it."""
    for step, faults in SUBMIT.items():
        for fault in faults if step != "items" else ():
            lenient = fault._replace(change=both(fault.change, header("prefer", "handling=lenient")))
            if fault.change is not SUBMIT["shape"][2].change:  # removes all headers
                check_refused(scenario, answer_to(scenario, "POST", lenient), fault)
    check_nothing_stored(scenario, before)


def both(*changes: Callable[[RequestDraft], None]) -> Callable[[RequestDraft], None]:
    def change(request: RequestDraft) -> None:
        for one in changes:
            one(request)

    return change


def test_a_group_or_all_groups_needs_no_default_group(scenario: RequestTargets, before: Any) -> None:
    """A bad item keeps the batch from being stored."""
    bad = SUBMIT["items"][0]
    for fields in ({"group_id": scenario.groups["bare"]}, {"org_slug": "bare", "all_groups": True}):
        changes = [body_field(name, value) for name, value in fields.items()]
        check_refused(scenario, answer_to(scenario, "POST", bad._replace(change=both(bad.change, *changes))), bad)
    check_nothing_stored(scenario, before)


@pytest.mark.parametrize("method", ORDERS)
def test_foreign_and_missing_targets_look_the_same(scenario: RequestTargets, method: str) -> None:
    """The answers differ only in the name sent: nobody can find out which organizations and groups exist."""

    def refused(**names: str) -> tuple[int, bytes]:
        request = RequestDraft(scenario, method)
        naming(**names)(request)
        answer = request.send()
        sent = names.get("org_slug") or scenario.groups[names["group_id"]]
        return answer.status, answer.body.replace(sent.encode(), b"-")

    assert refused(org_slug="nowhere") == refused(org_slug="foreign") == refused(org_slug="closed")
    groups = {refused(group_id=group) for group in ("unknown", "foreign", "closed", "retired", "malformed")}
    assert len(groups) == 1


def test_a_closed_default_organization_is_named(scenario: RequestTargets, before: Any) -> None:
    """It is named even if the request names none."""
    for method in ORDERS:
        check_refused(
            scenario, answer_to(scenario, method, no_organization(setting(token="of closed"), "closed")), CLOSED
        )
    check_nothing_stored(scenario, before)


def test_a_gzip_body_is_refused_in_the_same_order(scenario: RequestTargets, before: Any) -> None:
    """It is decompressed before its content is checked."""
    for step in ("permission", "organization", "group", "default group", "items"):
        for fault in SUBMIT[step]:
            change = both(fault.change, header("content-encoding", "gzip"), setting(encode=gzipped))
            check_refused(scenario, answer_to(scenario, "POST", fault._replace(change=change)), fault)
    check_nothing_stored(scenario, before)
