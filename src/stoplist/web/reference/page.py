"""`/docs` as HTML: everything on it comes from the OpenAPI document, and nothing from anywhere else.

Style and script stand in the page itself; its Content-Security-Policy lets in these two by their hashes, and no other.
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
    """The page, and the policy that it is to be sent with."""

    html: bytes
    content_security_policy: str


class Field(NamedTuple):
    """One field of an object, or one parameter, in words; `fields` are those of the objects inside."""

    name: str
    type: str
    is_required: bool
    description: str
    notes: list[str]
    values: list[str]
    inside: str
    fields: list["Field"]


class RefusalRow(NamedTuple):
    """One code of an error, with the fields that it has beside those of every error."""

    code: str
    status: str
    description: str
    fields: list[Field]
    example: Json


async def make_page(document: Json) -> ReferencePage:
    """The page for this document. It takes a tenth of a second, during which others run now and then."""
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
    """Reads the document, whose references it follows."""

    def __init__(self, document: Json) -> None:
        self._document = document

    def sections(self) -> list[Json]:
        """The operations of each tag."""
        operations = [
            self._operation(path, method, operation)
            for path, methods in self._document["paths"].items()
            for method, operation in methods.items()
        ]
        return [
            {**tag, "operations": [one for one in operations if tag["name"] in one["tags"]]}
            for tag in self._document["tags"]
        ]

    def refusals(self) -> list[tuple[str, list[RefusalRow]]]:
        """Every code, first those of the API, then those of the token endpoint."""
        known: dict[str, dict[str, RefusalRow]] = {"error": {}, "token-error": {}}
        for methods in self._document["paths"].values():
            for operation in methods.values():
                of_kind = known[_kind(operation)]
                for status, answer in operation["responses"].items():
                    if status != "200":
                        of_kind |= {one.code: one for one in self._refusals(status, answer) if one.code not in of_kind}
        return [(kind, list(of_kind.values())) for kind, of_kind in known.items()]

    def _operation(self, path: str, method: str, operation: Json) -> Json:
        answers = operation["responses"]
        success = _only(answers["200"]["content"])
        return {
            **operation,
            "path": path,
            "method": method.upper(),
            "kind": _kind(operation),
            "parameters": [self._parameter(one) for one in operation.get("parameters", [])],
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
        """Each kind of body, with its fields and examples."""
        if "requestBody" not in operation:
            return []
        ((media_type, content),) = operation["requestBody"]["content"].items()
        schemas = content["schema"].get("oneOf", [content["schema"]])
        examples = list(content["examples"].values())
        each = [[one] for one in examples] if len(schemas) > 1 else [examples]
        return [
            {
                "media_type": media_type,
                "description": self._resolved(schema)["description"],
                "fields": self._fields(schema),
                "examples": shown,
            }
            for schema, shown in zip(schemas, each, strict=True)
        ]

    def _refusals(self, status: str, answer: Json) -> list[RefusalRow]:
        content = _only(answer["content"])
        mapping = content["schema"].get("discriminator", {}).get("mapping", {})
        refusals = []
        for code, example in content["examples"].items():
            fields = self._fields({"$ref": mapping[code]} if code in mapping else content["schema"])
            extra = [one for one in fields if one.name not in ("error", "message", "error_description")]
            refusals.append(RefusalRow(code, status, example["description"], extra, example["value"]))
        return refusals

    def _parameter(self, parameter: Json) -> Field:
        return self._field(
            parameter["name"],
            {**parameter["schema"], "description": parameter["description"]},
            is_required=parameter.get("required", False),
        )

    def _fields(self, schema: Json) -> list[Field]:
        known = self._resolved(schema)
        return [
            self._field(name, field, is_required=name in known.get("required", ()))
            for name, field in known["properties"].items()
        ]

    def _field(self, name: str, schema: Json, *, is_required: bool) -> Field:
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

    def _resolved(self, schema: Json) -> Json:
        if "$ref" not in schema:
            return schema
        found: Json = self._document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        return found


def _kind(operation: Json) -> str:
    """To which of the two lists of errors an operation belongs."""
    return "error" if {"oauth2": []} in operation["security"] else "token-error"


def _type(schema: Json) -> str:
    words: str = schema["type"]
    if words == "array":
        words = "array of objects" if "$ref" in schema["items"] else f"array of {schema['items']['type']}s"
    if schema.get("format") == "date-time":
        words = "date-time"
    return f"{words} or null" if schema.get("nullable") else words


def _notes(schema: Json) -> list[str]:
    """Bounds and defaults, each as a short claim."""
    notes = []
    if "maximum" in schema:
        notes.append(f"{spaced(schema['minimum'])} to {spaced(schema['maximum'])}")
    if "maxItems" in schema:
        least = spaced(schema["minItems"]) if "minItems" in schema else "up"
        notes.append(f"{least} to {spaced(schema['maxItems'])} of them")
    if "maxLength" in schema:
        notes.append(f"at most {schema['maxLength']} characters")
    if "default" in schema:
        notes.append(f"by default {spaced(schema['default'])}")
    return notes


def _only(content: Json) -> Json:
    (only,) = content.values()
    found: Json = only
    return found


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
