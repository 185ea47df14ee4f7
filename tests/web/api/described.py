"""The published description, and what it says of an answer: which schema its body has, and which headers it carries."""

import copy
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from openapi_schema_validator import OAS30ReadValidator, OAS30WriteValidator, oas30_format_checker

from tests.web.application import Answer, Application

Json = dict[str, Any]

# What every answer may carry, whatever it says: the connection's affairs, which no description repeats.
_ANY_ANSWER = {"content-type", "content-length", "content-encoding", "vary", "pragma", "cache-control"}


class Operation(NamedTuple):
    """One of the seven."""

    path: str
    method: str
    details: Json

    @property
    def name(self) -> str:
        return str(self.details["operationId"])

    @property
    def body(self) -> Json:
        """The schema and examples of its body."""
        (content,) = self.details["requestBody"]["content"].values()
        found: Json = content
        return found

    def answer(self, status: int) -> Json:
        """The schema and examples of its answer with this status."""
        (content,) = self.details["responses"][str(status)]["content"].values()
        found: Json = content
        return found


class Described:
    """The description as it was published."""

    def __init__(self, text: bytes | str) -> None:
        self.document: Json = json.loads(text)
        self._closed = copy.deepcopy(self.document["components"])
        for schema in self._closed["schemas"].values():
            if schema.get("type") == "object":
                # What we answer has no field that is not described, though a client must bear one.
                schema["additionalProperties"] = False

    @property
    def operations(self) -> dict[str, Operation]:
        """All of them, by name."""
        paths = self.document["paths"]
        all_ = [Operation(path, method.upper(), one) for path in paths for method, one in paths[path].items()]
        return {one.name: one for one in all_}

    def refusals(self) -> set[tuple[str, int, str]]:
        """Operation, status and code of every refusal."""
        return {
            (one.name, int(status), code)
            for one in self.operations.values()
            for status in one.details["responses"]
            if status != "200"
            for code in one.answer(int(status))["examples"]
        }

    def faults_of_sent(self, value: Any, schema: Json) -> list[str]:
        """Why a body that is sent does not fit; empty if it does."""
        root = {"components": self.document["components"], "allOf": [schema]}
        return _messages(OAS30WriteValidator(root, format_checker=oas30_format_checker).iter_errors(value))

    def faults_of_answered(self, value: Any, schema: Json) -> list[str]:
        """Why a body that is answered does not fit; empty if it does."""
        root = {"components": self._closed, "allOf": [schema]}
        return _messages(OAS30ReadValidator(root, format_checker=oas30_format_checker).iter_errors(value))

    def check(self, operation: Operation, answer: Answer) -> None:
        """The answer's status, media type, body and headers are those that the description announces."""
        announced = operation.details["responses"][str(answer.status)]
        ((media_type, content),) = announced["content"].items()
        assert answer.header("content-type") == media_type
        assert self.faults_of_answered(answer.json(), content["schema"]) == []
        self._check_headers(announced["headers"], answer)

    def _check_headers(self, announced: Json, answer: Answer) -> None:
        for name, header in announced.items():
            known = self.document["components"]["headers"][name] if "$ref" in header else header
            value = answer.header(name.lower())
            if value is None:
                assert not known["required"], f"{name} is missing"
            else:
                typed = int(value) if known["schema"]["type"] == "integer" else value
                assert self.faults_of_answered(typed, known["schema"]) == []
        others = {name for name, _ in answer.headers} - {name.lower() for name in announced}
        assert others <= _ANY_ANSWER


def published(app: Application) -> Described:
    """What anybody may download from this application."""
    answer = app.request("GET", "/openapi.json")
    assert answer.status == 200
    return Described(answer.body)


def _messages(errors: Iterator[Any]) -> list[str]:
    return [error.message for error in errors]
