"""Acts sent over HTTP in any order and in any batches, against the naive model (docs/interface.md section D6)."""

from collections import Counter
from typing import Any, NamedTuple

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.fakes import FakeClock
from tests.unsubscribes.naive import NaiveFeed, NaiveItem, NaiveRecord, NaiveResult
from tests.unsubscribes.partner import as_shown, shown, written
from tests.web.api.partner import GZIP, JSON, Partner, gzipped
from tests.web.application import Answer, Application
from tests.web.conftest import Deployment

EXAMPLES = 15
# Without shrinking: an example is small already, and to try it again takes as long as the whole test.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
RESULTS = ("created", "updated", "unchanged", "outranked")
SPELLINGS = {"ann@x.org": "ann@x.org", " Ann@X.ORG\t": "ann@x.org", "bob@x.org": "bob@x.org"}
BAD = "nobody at all"
GROUPS = ("default", "other", None)


class Act(NamedTuple):
    """What a person did, as a partner writes it; `when` in milliseconds from a common past."""

    spelling: str
    status: str
    when: int
    group: str | None = "default"


class Sending(NamedTuple):
    """How a batch is sent."""

    is_gzipped: bool = False
    is_minimal: bool = False
    bad_items: int = 0


ACTS = st.lists(
    st.builds(
        Act,
        st.sampled_from(list(SPELLINGS)),
        st.sampled_from(["unsubscribed", "resubscribed"]),
        st.integers(1, 5),
        st.sampled_from(GROUPS),
    ),
    min_size=1,
    max_size=8,
)
SENDINGS = st.builds(Sending, st.booleans(), st.booleans(), st.integers(0, 2))


class World:
    """An organization that is reached over HTTP, and its naive counterpart."""

    def __init__(self, partner: Partner) -> None:
        self.partner, self.model = partner, NaiveFeed()
        self.began_ms = partner.clock.now_ms() - 1_000
        self.group_ids = {"default": partner.group_id, "other": partner.new_group("Reminders"), None: None}
        self.ids: dict[tuple[str, str | None], str] = {}

    def submit(self, group: str | None, acts: list[Act], sending: Sending) -> list[NaiveResult]:
        """One batch to both; what both answer, which is the same. Without acts there is nothing to send."""
        if not acts:
            return []
        items: list[Any] = [
            {"address": act.spelling, "status": act.status, "occurred_at": written(self.began_ms + act.when)}
            for act in acts
        ]
        items[:0] = [{"address": BAD}] * sending.bad_items
        expected, stores_something = self.model.submit(
            "partner", group, [self._of_model(act) for act in acts], self.partner.clock.now_ms()
        )
        answer = self._sent(group, items, sending)
        self._check(answer, group, expected, sending)
        assert (answer.json()["submission_id"] is not None) == stores_something
        return expected

    def read(self) -> list[dict[str, Any]]:
        """All records, as the model shows them too: page by page, those of each group, and looked up."""
        feed = self.partner.feed(limit="2")
        names = {group_id: name for name, group_id in self.group_ids.items()}
        for record in feed:
            self.ids.setdefault((record["address"], names[record["group_id"]]), record["id"])
        assert feed == self._shown(GROUPS)
        for name in ("default", "other"):
            assert self.partner.feed(limit="2", group_id=str(self.group_ids[name])) == self._shown((name, None))
        looked_up = self.partner.get([("address", spelling) for spelling in SPELLINGS]).json()
        assert looked_up["looked_up"] == list(SPELLINGS.values())
        assert looked_up["items"] == feed
        return feed

    def _sent(self, group: str | None, items: list[Any], sending: Sending) -> Answer:
        named: dict[str, Any] = {"all_groups": True} if group is None else {}
        if group == "other":
            named["group_id"] = self.group_ids[group]
        body = {**named, "items": items}
        preferences = [*["handling=lenient"] * bool(sending.bad_items), *["return=minimal"] * sending.is_minimal]
        headers = [JSON, *(("prefer", preference) for preference in preferences)]
        if sending.is_gzipped:
            return self.partner.post(gzipped(body), GZIP, *headers)
        return self.partner.post(body, *headers)

    def _check(self, answer: Answer, group: str | None, expected: list[NaiveResult], sending: Sending) -> None:
        assert answer.status == 200, answer.body
        body = answer.json()
        assert (body["org_slug"], body["group_id"]) == (self.partner.slug, self.group_ids[group])
        counts = Counter(result.result for result in expected)
        assert [body[name] for name in RESULTS] == [counts[name] for name in RESULTS]
        assert body["received"] == len(expected) + sending.bad_items
        errors = body.get("item_errors", [])
        assert [error["item_index"] for error in errors] == list(range(sending.bad_items))
        assert ("items" in body) is not sending.is_minimal
        for place, (item, result) in enumerate(zip(body.get("items", expected), expected, strict=True)):
            if item is not result:
                self._check_item(item, group, result, place + sending.bad_items)

    def _check_item(self, item: dict[str, Any], group: str | None, expected: NaiveResult, index: int) -> None:
        record_id = item.pop("id")
        assert self.ids.setdefault((expected.address, group), record_id) == record_id
        latest = {} if expected.latest_act_ms is None else {"latest_act_at": shown(expected.latest_act_ms)}
        assert item == {
            "item_index": index,
            "address": expected.address,
            "result": expected.result,
            "status": expected.status,
            **latest,
        }

    def _of_model(self, act: Act) -> NaiveItem:
        return NaiveItem(SPELLINGS[act.spelling], act.status, self.began_ms + act.when)

    def _shown(self, groups: tuple[str | None, ...]) -> list[dict[str, Any]]:
        return [self._record(record) for record in self.model.in_order() if record.group in groups]

    def _record(self, record: NaiveRecord) -> dict[str, Any]:
        record_id, group_id = self.ids[record.address, record.group], self.group_ids[record.group]
        return as_shown(record, record_id=record_id, org_slug=self.partner.slug, group_id=group_id)


def statuses(feed: list[dict[str, Any]], world: World) -> dict[tuple[str, str | None], str]:
    """What holds for each address and group; the groups of two worlds have names in common, not ids."""
    names = {group_id: name for name, group_id in world.group_ids.items()}
    return {(record["address"], names[record["group_id"]]): record["status"] for record in feed}


def batches(data: st.DataObject, acts: list[Act]) -> list[tuple[str | None, list[Act], Sending]]:
    """These acts in this order, in batches that are as long as they may be or shorter."""
    made: list[tuple[str | None, list[Act], Sending]] = []
    for act in acts:
        if made and made[-1][0] == act.group and data.draw(st.booleans()):
            made[-1][1].append(act)
        else:
            made.append((act.group, [act], data.draw(SENDINGS)))
    return made


def by_the_rule(acts: list[Act]) -> dict[tuple[str, str | None], str]:
    """The status after the last act of each person and group, an opt-out where two came at once."""
    last: dict[tuple[str, str | None], tuple[int, bool]] = {}
    for act in acts:
        key = SPELLINGS[act.spelling], act.group
        last[key] = max(last.get(key, (0, False)), (act.when, act.status == "unsubscribed"))
    return {key: "unsubscribed" if is_out else "resubscribed" for key, (_, is_out) in last.items()}


def probes(acts: list[Act], group: str | None) -> list[Act]:
    """For each person of the group, acts of the time of the last one known, and one later."""
    made: list[Act] = []
    for address in SPELLINGS.values():
        times = [act.when for act in acts if (SPELLINGS[act.spelling], act.group) == (address, group)]
        if times:
            made += [Act(address, status, max(times), group) for status in ("resubscribed", "unsubscribed")]
            made.append(Act(address, "resubscribed", max(times) + 1, group))
    return made


def new_world(deployment: Deployment) -> World:
    """With an organization of its own, and a limiter that has counted nothing yet."""
    clock = FakeClock()
    return World(Partner.new(Application(deployment.run, deployment.database, clock), clock))


def test_any_order_of_the_same_acts_ends_in_the_same_status_and_answers(each_deployment: Deployment) -> None:
    """Every answer on the way is the model's; in the end all orders know the same, and answer alike."""

    @settings(max_examples=EXAMPLES, phases=PHASES)
    @given(ACTS, st.data())
    def any_order(acts: list[Act], data: st.DataObject) -> None:
        ends = []
        for order in (acts, data.draw(st.permutations(acts)), sorted(acts, key=lambda act: -act.when)):
            world = new_world(each_deployment)
            for group, some, sending in batches(data, order):
                world.submit(group, some, sending)
            feed = world.read()
            assert statuses(feed, world) == by_the_rule(acts)
            for group in GROUPS:
                world.submit(group, [act for act in acts if act.group == group], Sending())
            assert world.read() == feed
            ends.append([world.submit(group, probes(acts, group), Sending()) for group in GROUPS])
            world.read()
        assert ends[0] == ends[1] == ends[2]

    any_order()
