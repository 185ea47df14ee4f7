"""The published test vectors, for programs that form canonical addresses by themselves."""

import json
from importlib import resources
from typing import NamedTuple


class Vector(NamedTuple):
    """An input and its result by the rule of the channel: either a canonical form or an error."""

    channel: str
    input: str
    canonical: str | None
    error: str | None


def load_vectors() -> list[Vector]:
    """Return all vectors in the order of the file. Only the presence of an error is part of the rule, not its text."""
    vectors = json.loads(resources.files(__package__).joinpath("vectors.json").read_text("utf-8"))
    return [
        Vector(vector["channel"], vector["input"], vector.get("canonical"), vector.get("error")) for vector in vectors
    ]
