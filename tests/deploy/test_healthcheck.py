"""The health check of the image, run beside servers of this checkout."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.constants import ROOT
from tests.e2e.server_process import Installation, reserved_address

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def check(**variables: str | int) -> subprocess.CompletedProcess[str]:
    """Run the check with these variables, named without prefix."""
    environ = {f"STOPLIST_{name}": str(value) for name, value in variables.items()}
    command = [sys.executable, str(ROOT / "deploy" / "healthcheck.py")]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_a_server_over_tls_is_healthy_until_its_end(tmp_path: Path) -> None:
    """The certificate need not name localhost, and its authority need not be known."""
    with Installation(tmp_path).serving() as server:
        assert check(PORT=server.port).returncode == 0
        assert server.terminate() == 0
        assert check(PORT=server.port).returncode == 1


def test_a_server_behind_a_proxy_is_healthy(tmp_path: Path) -> None:
    """It speaks plain HTTP. What answers something else, here the metrics, is no healthy server."""
    with (
        reserved_address() as metrics,
        Installation(tmp_path).serving(TRUSTED_PROXIES="10.0.0.5", METRICS_LISTEN=metrics) as server,
    ):
        assert check(PORT=server.port, TRUSTED_PROXIES="10.0.0.5").returncode == 0
        elsewhere = check(PORT=metrics.rpartition(":")[2], TRUSTED_PROXIES="10.0.0.5")
        assert (elsewhere.returncode, elsewhere.stderr) == (1, "/healthz answers 404\n")
