"""Fixtures for every test: a clock, an event loop, databases of either kind, and the servers beside them."""

import asyncio
import gc
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest

from tests.builders import Apart, Pooled, apart, in_a_loop, migrated, pooled
from tests.constants import ROOT
from tests.db import hosts
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.services import browser, releases
from tests.services import citus as distributed
from tests.services import haproxy as balancers
from tests.services import npm as node_packages
from tests.services import pgbouncer as poolers
from tests.services import postgresql as services
from tests.services import promtool as alert_rules
from tests.services import valkey as limit_stores
from tests.services.clean_database import CleanDatabase
from tests.services.managed_program import Unavailable, find_program
from tests.time_limits import LONG_DATABASE, set_constants
from tests.unsubscribes.partner import OptOutDeployment

Lend = Callable[..., AbstractContextManager[str]]

_LEFT_OUT = pytest.StashKey[dict[str, str]]()
_E2E = ROOT / "tests" / "e2e"
# Each takes more than half a minute of processor time, most of it in few tests.
_LONGEST = (
    "e2e/test_upgrade.py",
    "e2e/test_faults.py",
    "deploy/test_image.py",
    "web/admin/test_roles.py",
    "lists/uploads/test_kills.py",
    "deploy/test_release.py",
    "cli/test_import_faults.py",
    "maintenance/test_copy.py",
)
_IS_CI = bool(os.environ.get("CI"))
# On which each test of operations runs: `make test-apart` runs them on a pair of databases instead of one.
_DATABASES = ["apart"] if os.environ.get("TEST_FEEDS_APART") else ["sqlite", "postgresql"]

# In CI the same examples every time: a failure there belongs to the change, and to nobody else's luck.
_ANY_SPEED = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("local", _ANY_SPEED, print_blob=True)
hypothesis.settings.register_profile("ci", _ANY_SPEED, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if _IS_CI else "local")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the developer's own settings of Stoplist, and of PostgreSQL's clients, away from the tests.

    Restore the handler of Ctrl+C, which a command in the background lacks, as its children would.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_LEFT_OUT] = {}
    for name in list(os.environ):
        if name.startswith(("STOPLIST_", "PG")):
            del os.environ[name]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of tests that lacks the marker with which `-m` begins; most of them take longer than it to read.

    tests/house/test_left_out.py proves that each file names the markers of its tests.
    """
    marker, *others = config.option.markexpr.split(" and ")
    if not marker.isidentifier() or " or " in " ".join(others) or not collection_path.name.startswith("test_"):
        return None
    return f"mark.{marker}" not in collection_path.read_text() or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without the garbage collector: it would go through what has been imported, again and again."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, those of tests/e2e, and those with most tests, so that short ones end the run.

    The order within a file stays random.
    """
    longest = {ROOT / "tests" / name: place for place, name in enumerate(_LONGEST)}
    counts = Counter(item.path for item in items)
    places = {
        path: (longest.get(path, len(longest)), _E2E not in path.parents, -count) for path, count in counts.items()
    }
    items.sort(key=lambda item: places[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a closing line for each kind of test that was left out, and why."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    for where, reason in terminalreporter.config.stash[_LEFT_OUT].items():
        count = sum(reason in text for text in skipped)
        terminalreporter.write_line(f"Left out: {count} tests {where}: {reason}")


def leave_out(config: pytest.Config, where: str, reason: str, *, is_optional: bool = False) -> NoReturn:
    """Skip a test that needs what this machine lacks, and say so at the end; in CI, fail it unless it is optional."""
    if _IS_CI and not is_optional:
        pytest.fail(reason, pytrace=False)
    config.stash[_LEFT_OUT][where] = reason
    pytest.skip(reason)


@contextmanager
def needed(config: pytest.Config, where: str, *, is_optional: bool = False) -> Iterator[None]:
    """Leave the test out if what the context starts or finds is unavailable."""
    try:
        yield
    except Unavailable as error:
        leave_out(config, where, str(error), is_optional=is_optional)


@pytest.fixture(scope="session", autouse=True)
def _patient_databases() -> Iterator[None]:
    """Lengthen the time limits of databases in this process; a test of a limit sets it."""
    with pytest.MonkeyPatch.context() as patch:
        set_constants(patch, LONG_DATABASE)
        yield


@pytest.fixture(scope="session")
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Return `asyncio.run`, for tests whose body is a coroutine."""
    return asyncio.run


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that stands still until the test moves it."""
    return FakeClock()


@pytest.fixture(scope="session")
def postgresql(pytestconfig: pytest.Config) -> Iterator[services.PostgresqlServer]:
    """Yield the PostgreSQL of this run, started by the first test that needs it."""
    with needed(pytestconfig, "on PostgreSQL"), services.server(os.environ) as server:
        yield server


@pytest.fixture(scope="session")
def citus(pytestconfig: pytest.Config) -> Iterator[distributed.Citus]:
    """Yield the Citus of this run, where one is installed. No package index that CI uses has it."""
    with needed(pytestconfig, "on Citus", is_optional=True), distributed.citus() as nodes:
        yield nodes


@pytest.fixture(scope="session")
def valkey(pytestconfig: pytest.Config) -> Iterator[limit_stores.Valkey]:
    """Yield the Valkey or Redis of this run: tests use keys of their own, and one that stops a store starts its own."""
    with needed(pytestconfig, "on Valkey"), limit_stores.Valkey() as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgresql: services.PostgresqlServer, pytestconfig: pytest.Config) -> Iterator[poolers.PgBouncer]:
    """Yield the PgBouncer of this run, before its PostgreSQL; `url` turns the URL of a database into one through it."""
    with needed(pytestconfig, "through PgBouncer"), poolers.PgBouncer(postgresql.url("postgres")) as pooler:
        yield pooler


@pytest.fixture(scope="session", params=["haproxy", "nginx"])
def balancer_name(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> balancers.Name:
    """Return the name of an installed balancer; the test runs once with each."""
    name: balancers.Name = request.param
    with needed(pytestconfig, f"with {name}"):
        find_program(name)
    return name


@pytest.fixture(scope="session")
def chromium(pytestconfig: pytest.Config) -> Path:
    """Return the path of the installed browser."""
    with needed(pytestconfig, "in a browser"):
        found = browser.find(os.environ)
    return found


@pytest.fixture(scope="session")
def npm(pytestconfig: pytest.Config) -> node_packages.Npm:
    """Return Node.js and the packages that make clients in TypeScript."""
    with needed(pytestconfig, "with generators from npm"):
        found = node_packages.find()
    return found


@pytest.fixture(scope="session")
def promtool(pytestconfig: pytest.Config) -> alert_rules.Promtool:
    """Return the tool that evaluates alert rules."""
    with needed(pytestconfig, "with promtool"):
        found = alert_rules.Promtool()
    return found


@pytest.fixture
def own_postgresql(pytestconfig: pytest.Config) -> Iterator[services.Cluster]:
    """Yield a PostgreSQL that the test may stop, crash or promote."""
    with needed(pytestconfig, "on a PostgreSQL of their own"), hosts.own_cluster() as own:
        yield own


@pytest.fixture
def empty_postgresql_url(postgresql: services.PostgresqlServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a PostgreSQL database without a schema, dropped afterwards."""
    url = postgresql.fresh_database(request.node.name)
    yield url
    postgresql.drop_database(url)


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """Return the URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'stoplist.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a database without a schema; the test runs once on each kind."""
    url: str = request.getfixturevalue(f"empty_{request.param}_url")
    return url


@pytest.fixture(scope="session")
def _clean_databases(postgresql: services.PostgresqlServer) -> Iterator[Lend]:
    """Yield a function that lends a clean database for a purpose; two that are lent at once have different purposes."""
    by_purpose: dict[str, CleanDatabase] = {}

    def lend(purpose: str, *, pair_part: str | None = None) -> AbstractContextManager[str]:
        return by_purpose.setdefault(purpose, CleanDatabase(postgresql, pair_part=pair_part)).lent()

    yield lend
    for database in by_purpose.values():
        database.close()


@pytest.fixture(scope="session")
def _migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an SQLite file with the schema and no rows, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "stoplist.db"

    async def make() -> None:
        async with migrated(f"sqlite:///{path}"):
            pass

    asyncio.run(make())
    return path


@pytest.fixture
def postgresql_url(_clean_databases: Lend) -> Iterator[str]:
    """Yield the URL of a migrated PostgreSQL database without rows, for this test alone."""
    with _clean_databases("test") as url:
        yield url


@pytest.fixture
def apart_url(_clean_databases: Lend) -> Iterator[Apart]:
    """Yield the URLs of a migrated pair of PostgreSQL databases without rows, for this test alone."""
    with (
        _clean_databases("accounts", pair_part="accounts") as accounts,
        _clean_databases("feeds", pair_part="feeds") as feeds,
    ):
        yield apart(accounts, feeds)


@pytest.fixture(scope="module")
def module_apart_url(_clean_databases: Lend) -> Iterator[Apart]:
    """Yield the URLs of such a pair for all the tests of a module."""
    with (
        _clean_databases("accounts of a module", pair_part="accounts") as accounts,
        _clean_databases("feeds of a module", pair_part="feeds") as feeds,
    ):
        yield apart(accounts, feeds)


@pytest.fixture
def pooled_url(pgbouncer: poolers.PgBouncer, postgresql_url: str) -> Pooled:
    """Return the URL of that database through PgBouncer."""
    return pooled(pgbouncer, postgresql_url)


@pytest.fixture
def sqlite_url(_migrated_file: Path, tmp_path: Path) -> str:
    """Return the URL of a migrated SQLite file without rows."""
    return f"sqlite:///{shutil.copy(_migrated_file, tmp_path / 'stoplist.db')}"


@pytest.fixture(params=_DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a migrated database without rows; the test runs once on each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(scope="module")
def module_postgresql_url(_clean_databases: Lend) -> Iterator[str]:
    """Yield the URL of a migrated PostgreSQL database without rows, for all the tests of a module."""
    with _clean_databases("module") as url:
        yield url


@pytest.fixture(scope="module")
def module_pooled_url(pgbouncer: poolers.PgBouncer, _clean_databases: Lend) -> Iterator[Pooled]:
    """Yield the URL of another one through PgBouncer."""
    with _clean_databases("pooled module") as url:
        yield pooled(pgbouncer, url)


@pytest.fixture(scope="module")
def module_sqlite_url(_migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a migrated SQLite file without rows, for all the tests of a module."""
    return f"sqlite:///{shutil.copy(_migrated_file, tmp_path_factory.mktemp('module') / 'stoplist.db')}"


@pytest.fixture(scope="module", params=_DATABASES)
def module_database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a migrated database without rows for all the tests of a module, which run once on each kind."""
    url: str = request.getfixturevalue(f"module_{request.param}_url")
    return url


@pytest.fixture(scope="module")
def shared_database(module_database_url: str) -> Iterator[SharedDatabase]:
    """Yield the database of a module, open with one connection for reads and one for submissions."""
    with in_a_loop(migrated(module_database_url, pool_size=2)) as (run, database):
        yield SharedDatabase(run, database)


@pytest.fixture
def deployment(shared_database: SharedDatabase, clock: FakeClock) -> OptOutDeployment:
    """Return a deployment on it at the clock's time. Each test creates organizations of its own."""
    return OptOutDeployment.on(shared_database, clock)


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the files of a release."""
    return releases.made_once(tmp_path_factory, "release", releases.built_release)


@pytest.fixture(scope="session")
def server_programs(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of an operator's environment: the server and the addresses."""
    return releases.made_once(tmp_path_factory, "operator", partial(releases.installed, release, "stoplist"))


@pytest.fixture(scope="session")
def client_programs(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of a partner's environment: the client and the addresses, and no server."""
    return releases.made_once(tmp_path_factory, "partner", partial(releases.installed, release, "stoplist_client"))
