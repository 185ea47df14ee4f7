"""A deployment on either database, opened once for all the tests of a module."""

from pathlib import Path

import pytest

from stoplist.server.tls import ensure_development_certificate
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.notices.operator import NoticeDeployment
from tests.notices.receiver import HOST, NOW_MS


@pytest.fixture
def deployment(shared_database: SharedDatabase, clock: FakeClock) -> NoticeDeployment:
    """Return a deployment at the clock's time, without notices and people."""
    deployment = NoticeDeployment.on(shared_database, clock)
    shared_database.run(deployment.forget())
    return deployment


@pytest.fixture(scope="session")
def certificate_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which certificates are made once."""
    folder = tmp_path_factory.mktemp("certificates")
    ensure_development_certificate(folder, (HOST,), NOW_MS)
    return folder
