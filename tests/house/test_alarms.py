"""Alert rules, the dashboard and the operator guide watch the same alarms, by metrics that exist.

Source: docs/operate.md, Metrics and alarms.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from ruamel.yaml import YAML

from stoplist.limits.memory import MemoryLimiter
from stoplist.proof.held_requests import HeldRequests
from stoplist.proof.worst_keys import WorstKey, WorstKeys
from stoplist.server.aggregated_metrics import AggregatedMetrics, SupervisorMetrics
from stoplist.web.metrics import Metrics, families_of
from stoplist.web.request_context import RequestContext
from tests.builders import on_sqlite
from tests.constants import ROOT
from tests.fakes import FakeClock
from tests.services.promtool import RULES, Promtool, metric_names

GUIDE = (ROOT / "docs" / "operate.md").read_text()
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards" / "stoplist.json").read_text())
OF_SUPERVISOR = {"stoplist_workers", "stoplist_workers_configured", "stoplist_workers_replaced_total"}
SIGNALS = (
    *(
        "Requests",
        "Latency of requests",
        "Errors",
        "Limits",
        "Tokens",
        "Items of submissions",
        "Propagation",
        "Notices",
    ),
    *("Imports", "Memory", "Wait of a write", "Writers waiting"),
)


def loaded(file: Path) -> Any:
    return YAML(typ="safe").load(file)


def rules() -> list[dict[str, Any]]:
    return [rule for group in loaded(RULES)["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    """Yield every expression of the rules and of the dashboard."""
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


def alarms_of_guide() -> dict[str, str]:
    """Return the row of each alarm in the guide."""
    (table,) = re.findall(r"\| Alarm \| [^\n]*\n\|---[^\n]*\n(.*?)\n\n", GUIDE, re.DOTALL)
    return {re.split(r" \| ", row)[0].strip("| `"): row for row in table.splitlines()}


def test_the_guide_has_every_alarm_and_no_other() -> None:
    assert list(alarms_of_guide()) == [rule["alert"] for rule in rules()]


def test_each_alarm_says_what_to_do_and_where_to_read() -> None:
    """`guide` leads to a section that exists."""
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action", "guide"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        file, _, heading = rule["annotations"]["guide"].partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(), re.MULTILINE)
        assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in headings}, heading


def test_every_alarm_is_seen_to_fire_by_made_up_series() -> None:
    """Each test of the file also has a moment at which nothing fires; its result is in the test with promtool."""
    tests = loaded(PROMETHEUS / "stoplist.rules.test.yml")["tests"]
    fired = set()
    for test in tests:
        moments = [moment["exp_samples"] for moment in test["promql_expr_test"]]
        assert [] in moments, test["name"]
        fired |= set(re.findall(r'alertname="(\w+)"', str(moments)))
    assert fired == {rule["alert"] for rule in rules()}


@on_sqlite
async def test_metrics_of_rules_and_dashboard_exist(database: Any) -> None:
    """On the page of one process; with workers on that of their supervisor, which has all of these and its own."""
    worst = WorstKeys()
    metrics = Metrics(database, MemoryLimiter(FakeClock()), HeldRequests(database), worst)
    worst.by_feed, worst.limit_s = {("acme", "email"): WorstKey(1.0, 1)}, 60
    metrics.measured.certificate_end_s = metrics.measured.backup_s = metrics.measured.outbox_oldest_s = 1.0
    metrics.count_answer(RequestContext(request_id="", source_ip="", route="/x", status=429), 1)
    of_one = metric_names(generate_latest(metrics.registry).decode())
    workers, registry = AggregatedMetrics(), CollectorRegistry()
    workers.update(1, families_of(metrics.registry))
    registry.register(workers)
    registry.register(SupervisorMetrics(lambda: 1, configured=1))
    of_workers = metric_names(generate_latest(registry).decode())

    named = {name for expression in expressions() for name in re.findall(r"\bstoplist_\w+", expression)}
    assert named - of_one == OF_SUPERVISOR
    # A counter with labels is on the supervisor's page from its first count on.
    samples = generate_latest(metrics.registry).decode()
    uncounted = {name for name in of_one if not re.search(rf"^{name}[ {{]", samples, re.MULTILINE)}
    assert named - of_workers <= uncounted
    assert of_one | OF_SUPERVISOR == named | {"stoplist_request_seconds_sum"}, "each is watched"


def test_the_dashboard_shows_every_signal() -> None:
    """Each panel has what Grafana needs: a type, a place that no other panel covers, and its queries."""
    titles = [panel["title"] for panel in panels()]
    for signal in SIGNALS:
        assert any(title.startswith(signal) for title in titles), signal
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    covered = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24
        assert not covered & cells, panel["title"]
        covered |= cells
    for panel in panels():
        assert panel["type"] in ("timeseries", "stat")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "instance"}
    assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("stoplist", "Stoplist")


def test_provisioned_files_name_each_other() -> None:
    """Prometheus loads the rules and the targets; Grafana loads the dashboard, and a source of the dashboard's type."""
    configuration = loaded(PROMETHEUS / "prometheus.yml")
    (job,) = configuration["scrape_configs"]
    (files,) = (entry["files"] for entry in job["file_sd_configs"])
    assert all((PROMETHEUS / name).is_file() for name in (*configuration["rule_files"], *files))
    jobs = {name for text in expressions() for name in re.findall(r'job="([^"]*)"', text)}
    assert jobs == {job["job_name"]}
    (source,) = loaded(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    assert source["type"] == DASHBOARD["templating"]["list"][0]["query"]
    (provider,) = loaded(GRAFANA / "provisioning" / "dashboards" / "stoplist.yml")["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"


def test_each_alarm_fires_beyond_its_threshold_alone(promtool: Promtool) -> None:
    """The configuration and the rules are valid; made-up series just below each threshold raise nothing."""
    promtool.check("check", "config", PROMETHEUS / "prometheus.yml")
    promtool.check("check", "rules", RULES)
    promtool.check("test", "rules", PROMETHEUS / "stoplist.rules.test.yml")


def test_prometheus_can_read_every_panel(promtool: Promtool, tmp_path: Path) -> None:
    """Each expression, with a value in place of Grafana's variables, is one of Prometheus."""
    values = {"$__rate_interval": "1m", "$instance": ".*"}
    file = tmp_path / "panels.yml"
    texts = [target["expr"] for panel in panels() for target in panel["targets"]]
    for variable, value in values.items():
        texts = [text.replace(variable, value) for text in texts]
    records = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(texts)]
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": records}]}))
    promtool.check("check", "rules", file)
