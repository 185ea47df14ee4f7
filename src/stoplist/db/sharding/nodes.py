"""Reads the state of each node of a distributed database. Source: the reference of Citus 13, metadata tables."""

import msgspec

from stoplist.db import Database
from stoplist.db.query import load_queries

_QUERIES = load_queries(__package__)
_CITUS = _QUERIES["citus"]
_NODES = _QUERIES["nodes"]
_ASK_NODES = _QUERIES["ask_nodes"]
_NODE_FACTS = _QUERIES["node_facts"]


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The description that a node gives of itself.

    It has versions as a number and a text, and counts the connections of ordinary accounts.
    `old_prepared` counts transactions that were prepared more than five minutes ago and neither committed nor rolled
    back.
    """

    synchronous_commit: str
    fsync: str
    full_page_writes: str
    postgresql: int
    citus: str | None
    connections: int
    is_standby: bool
    is_read_only: bool
    old_prepared: int


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node and its facts, None if it is inactive or could not be asked."""

    name: str
    is_active: bool
    facts: NodeFacts | None


async def read_nodes(database: Database) -> list[Node]:
    """Return every node in the order of its group, the coordinator first; none if the database is not a Citus.

    For PostgreSQL. Raise StoreUnavailable if a node neither answers nor refuses in time.
    """
    citus = await database.one(_CITUS)
    if citus is None or not citus["is_there"]:
        return []
    nodes = await database.all(_NODES)
    answers = await database.all(_ASK_NODES, command=_NODE_FACTS.postgresql)
    facts = {
        answer["node_id"]: msgspec.json.decode(answer["result"], type=NodeFacts)
        for answer in answers
        if answer["is_reached"]
    }
    return [
        Node(name=f"{node['host']}:{node['port']}", is_active=node["is_active"], facts=facts.get(node["node_id"]))
        for node in nodes
    ]
