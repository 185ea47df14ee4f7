"""Submissions in any order and any batches, compared with a naive model (docs/interface.md section D6)."""

from collections import Counter
from typing import Any, NamedTuple

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.unsubscribes.naive import NaiveFeed, NaiveItem, NaiveRecord, NaiveResult
from tests.unsubscribes.partner import as_shown, shown, written
from tests.web.api.partner import GZIP, JSON, ApiPartner, gzipped
from tests.web.application import Answer, Application

EXAMPLES = {"sqlite": 15, "postgresql": 5}
# Without shrinking: an example is small already, and another one takes as long as the whole test.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
RESULTS = ("created", "updated", "unchanged", "outranked")
SPELLINGS = {"ann@x.org": "ann@x.org", " Ann@X.ORG\t": "ann@x.org", "bob@x.org": "bob@x.org"}
BAD = "nobody at all"
GROUPS = ("default", "other", None)


class Act(NamedTuple):
    """An act of a person, as a partner writes it; `when` is in milliseconds after a common start."""

    spelling: str
    status: str
    when: int
    group: str | None = "default"


class Options(NamedTuple):
    """The way in which a batch is sent."""

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
OPTIONS = st.builds(Options, st.booleans(), st.booleans(), st.integers(0, 2))


class ModelledOrganization:
    """An organization that is used over HTTP, and its naive model."""

    def __init__(self, partner: ApiPartner) -> None:
        self.partner, self.model = partner, NaiveFeed()
        self.began_ms = partner.clock.now_ms() - 1_000
        self.group_ids = {"default": partner.group_id, "other": partner.new_group("Reminders"), None: None}
        self.ids: dict[tuple[str, str | None], str] = {}

    def submit(self, group: str | None, acts: list[Act], options: Options) -> list[NaiveResult]:
        """Submit a batch to both, check that they answer alike, and return the results; none without acts."""
        if not acts:
            return []
        items: list[Any] = [
            {"address": act.spelling, "status": act.status, "occurred_at": written(self.began_ms + act.when)}
            for act in acts
        ]
        items[:0] = [{"address": BAD}] * options.bad_items
        expected, stores_something = self.model.submit(
            "partner", group, [self._model_item(act) for act in acts], self.partner.clock.now_ms()
        )
        answer = self._send(group, items, options)
        self._check(answer, group, expected, options)
        assert (answer.json()["submission_id"] is not None) == stores_something
        return expected

    def read(self) -> list[dict[str, Any]]:
        """Return all records, after comparing pages, group views and look-ups with the model."""
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

    def _send(self, group: str | None, items: list[Any], options: Options) -> Answer:
        named: dict[str, Any] = {"all_groups": True} if group is None else {}
        if group == "other":
            named["group_id"] = self.group_ids[group]
        body = {**named, "items": items}
        preferences = [*["handling=lenient"] * bool(options.bad_items), *["return=minimal"] * options.is_minimal]
        headers = [JSON, *(("prefer", preference) for preference in preferences)]
        if options.is_gzipped:
            return self.partner.post(gzipped(body), GZIP, *headers)
        return self.partner.post(body, *headers)

    def _check(self, answer: Answer, group: str | None, expected: list[NaiveResult], options: Options) -> None:
        assert answer.status == 200, answer.body
        body = answer.json()
        assert (body["org_slug"], body["group_id"]) == (self.partner.slug, self.group_ids[group])
        counts = Counter(result.result for result in expected)
        assert [body[name] for name in RESULTS] == [counts[name] for name in RESULTS]
        assert body["received"] == len(expected) + options.bad_items
        errors = body.get("item_errors", [])
        assert [error["item_index"] for error in errors] == list(range(options.bad_items))
        assert ("items" in body) is not options.is_minimal
        for index, (item, result) in enumerate(zip(body.get("items", expected), expected, strict=True)):
            if item is not result:
                self._check_item(item, group, result, index + options.bad_items)

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

    def _model_item(self, act: Act) -> NaiveItem:
        return NaiveItem(SPELLINGS[act.spelling], act.status, self.began_ms + act.when)

    def _shown(self, groups: tuple[str | None, ...]) -> list[dict[str, Any]]:
        return [self._record(record) for record in self.model.in_order() if record.group in groups]

    def _record(self, record: NaiveRecord) -> dict[str, Any]:
        record_id, group_id = self.ids[record.address, record.group], self.group_ids[record.group]
        return as_shown(record, record_id=record_id, org_slug=self.partner.slug, group_id=group_id)


def statuses(feed: list[dict[str, Any]], scenario: ModelledOrganization) -> dict[tuple[str, str | None], str]:
    """Return the status of each address and group; groups are named, since their ids differ between scenarios."""
    names = {group_id: name for name, group_id in scenario.group_ids.items()}
    return {(record["address"], names[record["group_id"]]): record["status"] for record in feed}


def batches(data: st.DataObject, acts: list[Act]) -> list[tuple[str | None, list[Act], Options]]:
    """Split these acts, in this order, into batches of any length for one group each."""
    split: list[tuple[str | None, list[Act], Options]] = []
    for act in acts:
        if split and split[-1][0] == act.group and data.draw(st.booleans()):
            split[-1][1].append(act)
        else:
            split.append((act.group, [act], data.draw(OPTIONS)))
    return split


def expected_statuses(acts: list[Act]) -> dict[tuple[str, str | None], str]:
    """Return the status after the last act of each person and group; of simultaneous acts the opt-out wins."""
    last: dict[tuple[str, str | None], tuple[int, bool]] = {}
    for act in acts:
        key = SPELLINGS[act.spelling], act.group
        last[key] = max(last.get(key, (0, False)), (act.when, act.status == "unsubscribed"))
    return {key: "unsubscribed" if is_out else "resubscribed" for key, (_, is_out) in last.items()}


def probes(acts: list[Act], group: str | None) -> list[Act]:
    """Return acts for each person of the group, at the time of the last known one and later."""
    acts_to_try: list[Act] = []
    for address in SPELLINGS.values():
        times = [act.when for act in acts if (SPELLINGS[act.spelling], act.group) == (address, group)]
        if times:
            acts_to_try += [Act(address, status, max(times), group) for status in ("resubscribed", "unsubscribed")]
            acts_to_try.append(Act(address, "resubscribed", max(times) + 1, group))
    return acts_to_try


def new_scenario(shared_database: SharedDatabase) -> ModelledOrganization:
    """Create a scenario with an organization and a limiter of its own."""
    clock = FakeClock()
    return ModelledOrganization(
        ApiPartner.new(Application(shared_database.run, shared_database.database, clock), clock)
    )


def test_any_order_of_the_same_acts_ends_in_the_same_state(shared_database: SharedDatabase) -> None:
    """Every answer agrees with the model; in the end all orders have the same statuses and answer alike."""

    @settings(max_examples=EXAMPLES[shared_database.database.kind], phases=PHASES)
    @given(ACTS, st.data())
    def any_order(acts: list[Act], data: st.DataObject) -> None:
        ends = []
        for order in (acts, data.draw(st.permutations(acts)), sorted(acts, key=lambda act: -act.when)):
            scenario = new_scenario(shared_database)
            for group, some, options in batches(data, order):
                scenario.submit(group, some, options)
            feed = scenario.read()
            assert statuses(feed, scenario) == expected_statuses(acts)
            for group in GROUPS:
                scenario.submit(group, [act for act in acts if act.group == group], Options())
            assert scenario.read() == feed
            ends.append([scenario.submit(group, probes(acts, group), Options()) for group in GROUPS])
            scenario.read()
        assert ends[0] == ends[1] == ends[2]

    any_order()
