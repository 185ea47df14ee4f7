"""A deployment on either database, opened once for all the tests of a module."""

import pytest

from tests.builders import execute
from tests.unsubscribes.conftest import deployment as deployment
from tests.unsubscribes.partner import OptOutDeployment


@pytest.fixture(autouse=True)
def no_link_keys(deployment: OptOutDeployment) -> None:
    """Keys of another test may be encrypted under another key."""
    deployment.run(execute(deployment.database, "DELETE FROM link_keys"))
