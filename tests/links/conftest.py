"""The database of a module, without the link keys of the tests before."""

import pytest

from tests.builders import execute
from tests.unsubscribes.partner import OptOutDeployment


@pytest.fixture(autouse=True)
def no_link_keys(deployment: OptOutDeployment) -> None:
    """Keys of another test may be encrypted under another key."""
    deployment.run(execute(deployment.database, "DELETE FROM link_keys"))
