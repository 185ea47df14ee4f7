"""The three packages and the documents name one version, and every released version is kept."""

import re
import tomllib
from typing import Any

import pytest
import stoplist_addresses
import stoplist_client

import stoplist
from tests import releases
from tests.constants import ROOT
from tests.services import revisions

VERSION = stoplist.__version__
PROJECTS = ("pyproject.toml", "addresses/pyproject.toml", "client/pyproject.toml")
PLACES = {
    "README.md": "This release ({})",
    "docs/interface.md": "**What release {} offers.**",
    "docs/operate.md": "python3 -m venv /opt/stoplist-{}",
}


def project(path: str) -> dict[str, Any]:
    fields: dict[str, Any] = tomllib.loads((ROOT / path).read_text())["project"]
    return fields


def changelog_versions() -> list[str]:
    return re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_packages_have_one_version() -> None:
    assert stoplist_addresses.__version__ == stoplist_client.__version__ == VERSION
    assert [project(path)["version"] for path in PROJECTS] == [VERSION] * 3


@pytest.mark.parametrize("path", ["pyproject.toml", "client/pyproject.toml"])
def test_the_address_rules_are_those_of_the_same_release(path: str) -> None:
    """Server and partners must agree to the letter."""
    bounds = [one for one in project(path)["dependencies"] if one.startswith("stoplist-addresses")]
    assert [one.partition("==")[2] for one in bounds] == [VERSION]


@pytest.mark.parametrize("document", PLACES)
def test_documents_name_this_version(document: str) -> None:
    assert PLACES[document].format(VERSION) in (ROOT / document).read_text()


def test_the_changelog_has_a_section_for_each_release() -> None:
    """Newest first; all but the one in the making have a date, a known commit, and a database that is kept."""
    newest, *earlier = changelog_versions()
    assert newest == VERSION
    assert sorted(earlier) == sorted(revisions.RELEASES) == releases.versions()
    for version in earlier:
        assert re.search(
            rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M
        )
