"""What the doctor is shown: settings, and findings by the name of their check."""

from collections.abc import Iterable
from pathlib import Path

from stoplist.maintenance.doctor.finding import Finding
from stoplist.settings import Settings, load


def settings(folder: Path, **variables: str) -> Settings:
    """The settings that these variables make, given without their prefix; the data folder is `data` in `folder`."""
    texts = {"DATA_DIR": str(folder / "data")} | variables
    return load({f"STOPLIST_{name}": text for name, text in texts.items()}, env_file=folder / ".env")


def statuses(findings: Iterable[Finding]) -> dict[str, str]:
    """The status of each check; of several findings of one check the last."""
    return {finding.check: finding.status for finding in findings}


def texts(findings: Iterable[Finding], status: str) -> str:
    """What is said of all that has this status."""
    return "\n".join(finding.text for finding in findings if finding.status == status)
