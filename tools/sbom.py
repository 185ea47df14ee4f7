"""Makes the SBOM of a release (CycloneDX 1.6) from a lock file, which names each package and what needs it.

It has no hashes of the locked packages: CycloneDX gives a component one file, and a locked version has one for each
platform. They are in the requirements beside the SBOM.
"""

import json
import re
import uuid
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

_LICENSE = "Apache-2.0"
# `name==version`, then perhaps `; marker`, in the first line of an entry.
_PIN = re.compile(r"([a-z0-9-]+)==([^\s;]+)(?: ; ([^\\]+?))? \\$")
# `# via name`, or `# via` and a line `#   name` for each; a name may be followed by the file it is in.
_VIA = re.compile(r" +#(?: via)? +([a-z0-9-]+)(?: \(.*\))?$")
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "stoplist")


class Wheel(NamedTuple):
    """A wheel of our own, and those of our own that it needs."""

    name: str
    version: str
    sha256: str
    needs: frozenset[str]


def make_sbom(lock: str, own: list[Wheel], subject: str, *, built_s: int) -> dict[str, Any]:
    """Return the SBOM of the wheel named `subject`, of `own`, with all packages of the lock file.

    The same arguments make the same SBOM, its serial number included.
    """
    needs: dict[str, set[str]] = defaultdict(set)
    components = {wheel.name: _own_component(wheel, is_subject=wheel.name == subject) for wheel in own}
    for wheel in own:
        needs[wheel.name] |= wheel.needs
    current = ""
    for line in lock.splitlines():
        if pin := _PIN.match(line):
            current = pin[1]
            components[current] = _component(current, pin[2], pin[3])
        elif via := _VIA.match(line):
            needs[via[1]].add(current)
    sbom: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(built_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": components[subject],
        },
        "components": [components[name] for name in sorted(components) if name != subject],
        "dependencies": [
            {
                "ref": components[name]["bom-ref"],
                "dependsOn": [components[needed]["bom-ref"] for needed in sorted(needs[name])],
            }
            for name in sorted(components)
        ],
    }
    return {"serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, json.dumps(sbom))}", **sbom}


def _component(name: str, version: str, marker: str | None) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if marker is None:
        return component
    # Not every Python needs it.
    return component | {"properties": [{"name": "stoplist:marker", "value": marker}]}


def _own_component(wheel: Wheel, *, is_subject: bool) -> dict[str, Any]:
    return _component(wheel.name, wheel.version, None) | {
        "type": "application" if is_subject else "library",
        "hashes": [{"alg": "SHA-256", "content": wheel.sha256}],
        "licenses": [{"license": {"id": _LICENSE}}],
    }
