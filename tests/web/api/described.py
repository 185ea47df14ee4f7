"""The published description, and checks of answers against it: body, media type and headers."""

import copy
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from openapi_schema_validator import OAS30ReadValidator, OAS30WriteValidator, oas30_format_checker

from tests.web.application import Answer, Application

Json = dict[str, Any]

# Headers that every answer may have and the description does not repeat.
_ANY_ANSWER = {"content-type", "content-length", "content-encoding", "vary", "pragma", "cache-control"}


class DescribedOperation(NamedTuple):
    """One of the seven operations."""

    path: str
    method: str
    details: Json

    @property
    def name(self) -> str:
        return str(self.details["operationId"])

    @property
    def body(self) -> Json:
        """The schema and examples of the request body."""
        (value,) = self.details["requestBody"]["content"].values()
        content: Json = value
        return content

    def answer(self, status: int) -> Json:
        """Return the schema and examples of the answer with this status."""
        (value,) = self.details["responses"][str(status)]["content"].values()
        content: Json = value
        return content


class Description:
    """The published OpenAPI document."""

    def __init__(self, text: bytes | str) -> None:
        self.document: Json = json.loads(text)
        self._closed = copy.deepcopy(self.document["components"])
        # Our answers have no undescribed field, though a client must accept one.
        self._closed["schemas"] = {
            name: self._closed_schema(schema) for name, schema in self._closed["schemas"].items()
        }

    def _closed_schema(self, schema: Json) -> Json:
        parts = [self._resolved(part) for part in schema.get("allOf", ())] or [schema]
        if any(part.get("type") != "object" for part in parts):
            return schema
        properties: Json = {}
        for part in parts:
            properties |= part["properties"]
        required = [name for part in parts for name in part.get("required", ())]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def _resolved(self, schema: Json) -> Json:
        if "$ref" not in schema:
            return schema
        found: Json = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return found

    @property
    def operations(self) -> dict[str, DescribedOperation]:
        """All operations, by name."""
        paths = self.document["paths"]
        all_ = [
            DescribedOperation(path, method.upper(), details)
            for path in paths
            for method, details in paths[path].items()
        ]
        return {operation.name: operation for operation in all_}

    def refusals(self) -> set[tuple[str, int, str]]:
        """Return operation, status and code of every refusal."""
        return {
            (operation.name, int(status), code)
            for operation in self.operations.values()
            for status in operation.details["responses"]
            if status != "200"
            for code in operation.answer(int(status))["examples"]
        }

    def values_of(self, schema: Json) -> list[str | None]:
        """Return the values that a field may have: of its enumeration, or of each alternative."""
        found: list[str | None] = list(schema.get("enum", ()))
        for part in (*schema.get("allOf", ()), *schema.get("oneOf", ())):
            found += self.values_of(self._resolved(part))
        return found

    def request_errors(self, value: Any, schema: Json) -> list[str]:
        """Return why a request body does not match a schema; empty if it does."""
        root = {"components": self.document["components"], "allOf": [schema]}
        return _messages(OAS30WriteValidator(root, format_checker=oas30_format_checker).iter_errors(value))

    def answer_errors(self, value: Any, schema: Json) -> list[str]:
        """Return why the body of an answer does not match a schema; empty if it does."""
        root = {"components": self._closed, "allOf": [schema]}
        return _messages(OAS30ReadValidator(root, format_checker=oas30_format_checker).iter_errors(value))

    def check(self, operation: DescribedOperation, answer: Answer) -> None:
        """Check status, media type, body and headers of an answer against the description."""
        described = operation.details["responses"][str(answer.status)]
        ((media_type, content),) = described["content"].items()
        assert answer.header("content-type") == media_type
        assert self.answer_errors(answer.json(), content["schema"]) == []
        self._check_headers(described["headers"], answer)

    def _check_headers(self, described: Json, answer: Answer) -> None:
        for name, header in described.items():
            known = self.document["components"]["headers"][name] if "$ref" in header else header
            value = answer.header(name.lower())
            if value is None:
                assert not known["required"], f"{name} is missing"
            else:
                typed = int(value) if known["schema"]["type"] == "integer" else value
                assert self.answer_errors(typed, known["schema"]) == []
        others = {name for name, _ in answer.headers} - {name.lower() for name in described}
        assert others <= _ANY_ANSWER


def published(app: Application) -> Description:
    """Return the description that anybody may download from this application."""
    answer = app.request("GET", "/openapi.json")
    assert answer.status == 200
    return Description(answer.body)


def _messages(errors: Iterator[Any]) -> list[str]:
    return [error.message for error in errors]
