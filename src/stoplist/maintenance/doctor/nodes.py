"""Checks the nodes of a distributed database: what is asked of one PostgreSQL is asked of each of them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from stoplist.db import Database
from stoplist.db.sharding.nodes import Node, NodeFacts, read_nodes
from stoplist.errors import StoreUnavailable
from stoplist.maintenance.doctor.finding import WRONG, Finding, ok, wrong
from stoplist.settings import Settings

CHECK = "nodes"
_DURABILITY = ("synchronous_commit", "fsync", "full_page_writes")
_MINIMUM_VERSION = 15


class NodesExamined(NamedTuple):
    """The findings, and the names of the nodes that confirm commits before they are on disk."""

    findings: list[Finding]
    lossy: list[str]

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == WRONG]


async def examine(database: Database, settings: Settings) -> NodesExamined:
    """Ask all nodes of a Citus, and return what was found; nothing for a database that is not distributed."""
    try:
        nodes = await read_nodes(database)
    except StoreUnavailable:
        text = "Not all nodes answer in time: find the one that hangs with citus_check_cluster_node_health()."
        return NodesExamined([wrong(CHECK, text)], [])
    return NodesExamined(assess_nodes(nodes, settings), _names(nodes, lambda facts: facts.synchronous_commit == "off"))


def assess_nodes(nodes: Sequence[Node], settings: Settings) -> list[Finding]:
    """Return one finding for each problem with its nodes, or one that all is well."""
    if not nodes:
        return []
    problems = [wrong(CHECK, text) for text in _problems(nodes, settings)]
    names = ", ".join(node.name for node in nodes)
    return problems or [ok(CHECK, f"All are active, durable and of one version: {names}.")]


def _problems(nodes: Sequence[Node], settings: Settings) -> Iterator[str]:
    if inactive := [node.name for node in nodes if not node.is_active]:
        yield f"Inactive: {_listed(inactive)}. Their feeds are refused with 503: start them, then citus_activate_node."
    if lost := [node.name for node in nodes if node.is_active and node.facts is None]:
        yield f"Not reached by the coordinator: {_listed(lost)}. Start them, and check pg_hba.conf and .pgpass."
    for setting in _DURABILITY:
        if weak := _names(nodes, partial(_is_off, setting)):
            yield f"{setting} = off on {_listed(weak)}; a crash there may lose confirmed writes: set on."
    if standbys := _names(nodes, lambda facts: facts.is_standby or facts.is_read_only):
        yield f"Take no writes: {_listed(standbys)}. Name their primaries with citus_update_node, or promote them."
    yield from _version_problems(nodes)
    needed = settings.database_pool * settings.workers
    if full := _names(nodes, lambda facts: facts.connections < needed):
        yield (
            f"The coordinator opens up to {needed} connections to each node for one host (STOPLIST_DATABASE_POOL times "
            f"STOPLIST_WORKERS), and {_listed(full)} cannot take them: raise max_connections there."
        )
    if stuck := _names(nodes, lambda facts: facts.old_prepared > 0):
        yield (
            f"Transactions prepared more than 5 minutes ago hold locks on {_listed(stuck)}: run SELECT "
            "recover_prepared_transactions() on the coordinator, then look for what is left in pg_prepared_xacts."
        )


def _version_problems(nodes: Sequence[Node]) -> Iterator[str]:
    if old := _names(nodes, lambda facts: facts.postgresql < _MINIMUM_VERSION):
        yield f"Stoplist needs PostgreSQL {_MINIMUM_VERSION} or newer, also on {_listed(old)}."
    versions = Counter((node.facts.postgresql, node.facts.citus) for node in nodes if node.facts is not None)
    if len(versions) > 1:
        shown = ", ".join(
            f"{node.name} has PostgreSQL {node.facts.postgresql} and Citus {node.facts.citus or '(none)'}"
            for node in nodes
            if node.facts is not None
        )
        yield f"All nodes need the same versions: {shown}. Update the rest, and ALTER EXTENSION citus UPDATE on each."


def _names(nodes: Sequence[Node], applies: Callable[[NodeFacts], bool]) -> list[str]:
    return [node.name for node in nodes if node.facts is not None and applies(node.facts)]


def _is_off(setting: str, facts: NodeFacts) -> bool:
    return bool(getattr(facts, setting) == "off")


def _listed(names: list[str]) -> str:
    return ", ".join(names)
