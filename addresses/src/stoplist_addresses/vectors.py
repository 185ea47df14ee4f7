"""The published test vectors: what any program that forms canonical addresses by itself must agree with."""

import json
from importlib import resources
from typing import NamedTuple


class Vector(NamedTuple):
    """An input, and what the rule of its channel makes of it: either a canonical form or an error."""

    channel: str
    input: str
    canonical: str | None
    error: str | None


def load_vectors() -> list[Vector]:
    """All vectors, in the order of the file. The texts of errors are for people; that there is one is the rule."""
    vectors = json.loads(resources.files(__package__).joinpath("vectors.json").read_text("utf-8"))
    return [Vector(each["channel"], each["input"], each.get("canonical"), each.get("error")) for each in vectors]
