"""`/docs` as HTML, generated from the OpenAPI document alone.

Style and script are inline; the Content-Security-Policy of the page allows these two by their hashes, and no others.
Source: docs/interface.md section D10.
"""

import base64
import hashlib
import json
from importlib import resources
from typing import Any, NamedTuple

import jinja2

from stoplist.slicing import yield_to_loop
from stoplist.web.reference.commonmark import headings, render, slug, unbroken
from stoplist.web.reference.prose import spaced
from stoplist.web.reference.schemas import Json


class ReferencePage(NamedTuple):
    """The page, and the policy that it must be sent with."""

    html: bytes
    content_security_policy: str


class Field(NamedTuple):
    """One field of an object or one parameter, as displayed; `fields` are those of the objects in an array."""

    name: str
    type: str
    is_required: bool
    description: str
    notes: list[str]
    values: list[str]
    inside: str
    fields: list["Field"]


class RefusalRow(NamedTuple):
    """One error code, with the fields that it has in addition to those of every error."""

    code: str
    status: str
    description: str
    fields: list[Field]
    example: Json


async def make_page(document: Json) -> ReferencePage:
    """Render the page for this document, which takes 0.1 s and yields to other tasks in between."""
    files = resources.files(__package__)
    style, script, template = (files.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js", "html"))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"text": render, "slug": slug, "unbroken": unbroken, "pretty": _pretty}
    reader = _Reader(document)
    compiled = environment.from_string(template)
    await yield_to_loop()
    html = compiled.render(
        document=document,
        topics=headings(document["info"]["description"]),
        sections=reader.sections(),
        refusals=reader.refusals(),
        style=style,
        script=script,
    )
    return ReferencePage(html.encode(), _policy(style, script))


class _Reader:
    """Extracts from the document what the template displays, and resolves its references."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def sections(self) -> list[Json]:
        """Return each tag with its operations."""
        operations = [
            self._operation(path, method, operation)
            for path, methods in self._document["paths"].items()
            for method, operation in methods.items()
        ]
        return [
            {**tag, "operations": [operation for operation in operations if tag["name"] in operation["tags"]]}
            for tag in self._document["tags"]
        ]

    def refusals(self) -> list[tuple[str, list[RefusalRow]]]:
        """Return every error code, first those of the API, then those of the token endpoint."""
        rows: dict[str, dict[str, RefusalRow]] = {"error": {}, "token-error": {}}
        for methods in self._document["paths"].values():
            for operation in methods.values():
                of_kind = rows[_kind(operation)]
                for status, answer in operation["responses"].items():
                    if status != "200":
                        of_kind |= {row.code: row for row in self._refusals(status, answer) if row.code not in of_kind}
        return [(kind, list(of_kind.values())) for kind, of_kind in rows.items()]

    def _operation(self, path: str, method: str, operation: Json) -> Json:
        answers = operation["responses"]
        success = _only(answers["200"]["content"])
        return {
            **operation,
            "path": path,
            "method": method.upper(),
            "kind": _kind(operation),
            "parameters": [self._parameter(parameter) for parameter in operation.get("parameters", [])],
            "bodies": self._bodies(operation),
            "success": {
                "description": answers["200"]["description"],
                "headers": list(answers["200"]["headers"]),
                "fields": self._fields(success["schema"]),
                "examples": list(success["examples"].values()),
            },
            "refusals": [
                (status, answer["description"], list(_only(answer["content"])["examples"]))
                for status, answer in answers.items()
                if status != "200"
            ],
            "authorization": [
                self._document["components"]["securitySchemes"][name]["description"]
                for requirement in operation["security"]
                for name in requirement
            ],
        }

    def _bodies(self, operation: Json) -> list[Json]:
        """Return each kind of body, with its fields and examples."""
        if "requestBody" not in operation:
            return []
        ((media_type, content),) = operation["requestBody"]["content"].items()
        schemas = content["schema"].get("oneOf", [content["schema"]])
        examples = list(content["examples"].values())
        by_schema = [[example] for example in examples] if len(schemas) > 1 else [examples]
        return [
            {
                "media_type": media_type,
                "description": self._resolved(schema)["description"],
                "fields": self._fields(schema),
                "examples": of_schema,
            }
            for schema, of_schema in zip(schemas, by_schema, strict=True)
        ]

    def _refusals(self, status: str, answer: Json) -> list[RefusalRow]:
        content = _only(answer["content"])
        mapping = content["schema"].get("discriminator", {}).get("mapping", {})
        refusals = []
        for code, example in content["examples"].items():
            fields = self._fields({"$ref": mapping[code]} if code in mapping else content["schema"])
            extra = [field for field in fields if field.name not in ("error", "message", "error_description")]
            refusals.append(RefusalRow(code, status, example["description"], extra, example["value"]))
        return refusals

    def _parameter(self, parameter: Json) -> Field:
        return self._field(
            parameter["name"],
            {**parameter["schema"], "description": parameter["description"]},
            is_required=parameter.get("required", False),
        )

    def _fields(self, schema: Json) -> list[Field]:
        properties, required = self._properties(schema)
        return [self._field(name, field, is_required=name in required) for name, field in properties.items()]

    def _properties(self, schema: Json) -> tuple[Json, list[str]]:
        """Return the properties of an object and of all that it consists of, and which of them are required."""
        resolved = self._resolved(schema)
        properties: Json = {}
        required: list[str] = []
        for part in resolved.get("allOf", ()):
            properties |= (found := self._properties(part))[0]
            required += found[1]
        return properties | resolved.get("properties", {}), [*required, *resolved.get("required", ())]

    def _field(self, name: str, schema: Json, *, is_required: bool) -> Field:
        schema = self._with_values(schema)
        items = schema.get("items", {})
        return Field(
            name,
            _type(schema),
            is_required,
            schema.get("description", ""),
            _notes(schema),
            [str(value) for value in schema.get("enum", ()) if value is not None],
            items["$ref"].rsplit("/", 1)[1] if "$ref" in items else "",
            self._fields(items) if "$ref" in items else [],
        )

    def _with_values(self, schema: Json) -> Json:
        """Return the schema of a field; if it refers to an enumeration, or null, with those values."""
        for keyword in ("allOf", "oneOf"):
            for part in schema.get(keyword, ()):
                schema = {**self._resolved(part), **schema}
        return self._resolved(schema)

    def _resolved(self, schema: Json) -> Json:
        if "$ref" not in schema:
            return schema
        resolved: Json = self._document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            resolved = resolved[step]
        return resolved


def _kind(operation: Json) -> str:
    """Return which of the two lists of errors belongs to an operation."""
    return "error" if {"oauth2": []} in operation["security"] else "token-error"


def _type(schema: Json) -> str:
    text: str = schema["type"]
    if text == "array":
        text = "array of objects" if "$ref" in schema["items"] else f"array of {schema['items']['type']}s"
    if schema.get("format") == "date-time":
        text = "date-time"
    return f"{text} or null" if schema.get("nullable") else text


def _notes(schema: Json) -> list[str]:
    """Return the bounds and the default of a value, each as a short text."""
    notes = []
    if "maximum" in schema:
        notes.append(f"{spaced(schema['minimum'])} to {spaced(schema['maximum'])}")
    if "maxItems" in schema:
        least = spaced(schema["minItems"]) if "minItems" in schema else "up"
        notes.append(f"{least} to {spaced(schema['maxItems'])} items")
    if "maxLength" in schema:
        notes.append(f"at most {schema['maxLength']} characters")
    if "default" in schema:
        notes.append(f"by default {spaced(schema['default'])}")
    return notes


def _only(content: Json) -> Json:
    (value,) = content.values()
    only: Json = value
    return only


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
