"""Helpers for the doctor's tests: settings of an installation, and findings by check."""

from collections.abc import Iterable
from pathlib import Path

from stoplist.maintenance.doctor.finding import Finding
from stoplist.settings import Settings, load


def settings(folder: Path, **variables: str) -> Settings:
    """Return the settings of these variables, given without prefix; the data folder is `data` in `folder`."""
    texts = {"DATA_DIR": str(folder / "data")} | variables
    return load({f"STOPLIST_{name}": text for name, text in texts.items()}, env_file=folder / ".env")


def statuses(findings: Iterable[Finding]) -> dict[str, str]:
    """Return the status by check; of several findings of one check, the last."""
    return {finding.check: finding.status for finding in findings}


def texts(findings: Iterable[Finding], status: str) -> str:
    """Return the texts of all findings with this status, one per line."""
    return "\n".join(finding.text for finding in findings if finding.status == status)
