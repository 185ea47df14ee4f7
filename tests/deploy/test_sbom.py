"""The SBOM of a release. Real locks, and CycloneDX' own schema."""

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools.sbom import Wheel, make_sbom

LOCKS = Path(__file__).parents[2] / "requirements"
BUILT_S = 1_770_000_000
ADDRESSES = Wheel("stoplist-addresses", "1.2.3", sha256="0" * 64, needs=frozenset())
SERVER = Wheel("stoplist", "1.2.3", sha256="1" * 64, needs=frozenset({"stoplist-addresses"}))
CLIENT = Wheel("stoplist-client", "1.2.3", sha256="2" * 64, needs=frozenset({"stoplist-addresses"}))

projects = pytest.mark.parametrize(("lock", "wheel"), [("runtime.txt", SERVER), ("client.txt", CLIENT)])


def sbom(lock: str, wheel: Wheel) -> dict[str, Any]:
    return make_sbom((LOCKS / lock).read_text(), [ADDRESSES, wheel], wheel.name, built_s=BUILT_S)


@projects
def test_an_sbom_is_what_cyclonedx_says(lock: str, wheel: Wheel) -> None:
    """No tool that reads one stumbles."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(sbom(lock, wheel))) is None


def test_a_wrong_sbom_is_noticed() -> None:
    """The validator can fail."""
    wrong = json.dumps(sbom("runtime.txt", SERVER) | {"serialNumber": "1"})
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(wrong) is not None


@projects
def test_an_sbom_has_every_locked_version(lock: str, wheel: Wheel) -> None:
    """And our own wheels, but the subject, which is what it is about."""
    pins = {line.split(" ")[0] for line in (LOCKS / lock).read_text().splitlines() if "==" in line and line[0] != " "}
    made = sbom(lock, wheel)
    listed = {f"{component['name']}=={component['version']}" for component in made["components"]}
    assert listed == pins | {"stoplist-addresses==1.2.3"}
    assert made["metadata"]["component"]["name"] == wheel.name


@projects
def test_everything_in_an_sbom_is_needed_by_something(lock: str, wheel: Wheel) -> None:
    """From the subject, every component is reached by what depends on it."""
    made = sbom(lock, wheel)
    needs = {entry["ref"]: entry["dependsOn"] for entry in made["dependencies"]}
    reached, waiting = set[str](), [made["metadata"]["component"]["bom-ref"]]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += needs[ref]
    assert reached == {made["metadata"]["component"]["bom-ref"], *(it["bom-ref"] for it in made["components"])}


def test_an_sbom_says_what_needs_what_and_where() -> None:
    """A package that some versions of Python do without has its marker."""
    lock = "idna==3.20 \\\n    --hash=sha256:0\n    # via\n    #   -c requirements/runtime.txt\n    #   anyio\n"
    lock += "anyio==4.1 ; python_full_version < '3.15' \\\n    --hash=sha256:1\n    # via stoplist (pyproject.toml)\n"
    made = make_sbom(lock, [ADDRESSES, SERVER], "stoplist", built_s=BUILT_S)
    needs = {entry["ref"]: entry["dependsOn"] for entry in made["dependencies"]}
    assert needs["pkg:pypi/anyio@4.1"] == ["pkg:pypi/idna@3.20"]
    assert "pkg:pypi/anyio@4.1" in needs["pkg:pypi/stoplist@1.2.3"]
    marked = {it["name"]: it["properties"][0]["value"] for it in made["components"] if "properties" in it}
    assert marked == {"anyio": "python_full_version < '3.15'"}
