"""Imports follow the contracts in pyproject.toml, and each contract fails when an import breaks it."""

import tomllib
from copy import deepcopy
from typing import Any

import grimp
import pytest
from importlinter.configuration import configure
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract

from tests.constants import ROOT

configure()
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["id"]: contract for contract in CONFIGURATION["contracts"]}
SESSION = {"root_packages": CONFIGURATION["root_packages"], "include_external_packages": "True"}
TYPES: dict[str, type[Any]] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Return the import graph of all packages."""
    return grimp.build_graph(*CONFIGURATION["root_packages"], include_external_packages=True, cache_dir=None)


def is_kept(contract_id: str, graph: grimp.ImportGraph) -> bool:
    """Return whether the import graph keeps the contract of that id."""
    options: dict[str, Any] = {k: v for k, v in CONTRACTS[contract_id].items() if k not in ("id", "name", "type")}
    options = {name: str(value) if isinstance(value, bool) else value for name, value in options.items()}
    contract = TYPES[CONTRACTS[contract_id]["type"]](
        name=CONTRACTS[contract_id]["name"], session_options=SESSION, contract_options=options
    )
    kept: bool = contract.check(deepcopy(graph), verbose=False).kept
    return kept


def with_imports(graph: grimp.ImportGraph, *imports: tuple[str, str]) -> grimp.ImportGraph:
    """Return a copy of the graph in which each first module imports the second."""
    changed = deepcopy(graph)
    for importer, imported in imports:
        changed.add_import(importer=importer, imported=imported, line_number=1, line_contents="import")
    return changed


@pytest.mark.parametrize("contract_id", CONTRACTS)
def test_contract_is_kept(contract_id: str, graph: grimp.ImportGraph) -> None:
    """Edges above operations above foundations; HTTP at the edges only, drivers in db only; no cycles."""
    assert is_kept(contract_id, graph)


@pytest.mark.parametrize(
    ("contract_id", "importer", "imported"),
    [
        ("layers", "stoplist.web.app", "stoplist.server.lifecycle"),
        ("layers", "stoplist.oauth.tokens", "stoplist.web.app"),
        ("layers", "stoplist.limits.memory", "stoplist.oauth"),
        ("layers", "stoplist.organizations.groups", "stoplist.limits"),
        ("layers", "stoplist.unsubscribes.submit", "stoplist.records.history"),
        ("layers", "stoplist.audit.trail", "stoplist.organizations"),
        ("layers", "stoplist.db.query", "stoplist.audit"),
        ("edges", "stoplist.oauth.tokens", "starlette"),
        ("edges", "stoplist.errors", "click"),
        ("reference", "stoplist.web.reference.page", "stoplist.web.admin.rendering"),
        ("reference", "stoplist.web.admin.rendering", "stoplist.web.reference.prose"),
        ("drivers", "stoplist.audit.trail", "asyncpg"),
        ("drivers", "stoplist.web.health", "sqlite3"),
        ("drivers", "stoplist.maintenance.after_restore", "sqlite3"),
        ("limit-store", "stoplist.web.health", "redis"),
        ("addresses", "stoplist_addresses.email", "stoplist.ids"),
        ("addresses", "stoplist_addresses.email", "stoplist_client.model"),
        ("client", "stoplist_client.errors", "stoplist.errors"),
        ("client", "stoplist.cli.main", "stoplist_client.model"),
        ("client-layers", "stoplist_client.mirror.mirror", "stoplist_client.cli.main"),
        ("client-layers", "stoplist_client.core", "stoplist_client.client"),
        ("client-layers", "stoplist_client.client", "stoplist_client.async_client"),
        ("client-layers", "stoplist_client.flows.submitting", "stoplist_client.transport.driver"),
        ("client-flows", "stoplist_client.flows.following", "stoplist_client.flows.submitting"),
        ("client-flows", "stoplist_client.flows.flow", "stoplist_client.flows.sending"),
        ("client-network", "stoplist_client.flows.sending", "httpx2"),
        ("client-network", "stoplist_client.flows.renewal", "asyncio"),
        ("client-network", "stoplist_client.mirror.mirror", "anyio"),
    ],
)
def test_forbidden_import_is_found(contract_id: str, importer: str, imported: str, graph: grimp.ImportGraph) -> None:
    """Upwards, sideways, or past an interface."""
    assert not is_kept(contract_id, with_imports(graph, (importer, imported)))


@pytest.mark.parametrize(
    ("one", "other"),
    [("stoplist.log", "stoplist.ids"), ("stoplist_client.tokens.tokens", "stoplist_client.tokens.stores")],
)
def test_cycle_is_found(one: str, other: str, graph: grimp.ImportGraph) -> None:
    """Two modules that import each other cannot be understood separately."""
    assert not is_kept("cycles", with_imports(graph, (one, other), (other, one)))


@pytest.mark.parametrize(
    ("contract_id", "package"),
    [("layers", "stoplist"), ("client-layers", "stoplist_client"), ("client-flows", "stoplist_client.flows")],
)
def test_new_package_needs_a_layer(contract_id: str, package: str, graph: grimp.ImportGraph) -> None:
    changed = deepcopy(graph)
    changed.add_module(f"{package}.attic")
    assert not is_kept(contract_id, changed)
