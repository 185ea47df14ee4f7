"""The schemas of the description, made from the very types that the code reads and answers with.

msgspec writes JSON Schema of 2020-12; OpenAPI 3.0.3 has words of its own for null, constants and examples.
Source: docs/interface.md sections 4.3, 7.1 and D4.
"""

import inspect
from collections.abc import Iterable
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from stoplist.errors import (
    ANSWERS,
    BadRequest,
    DefaultGroupNotConfigured,
    InvalidItem,
    ServerFault,
    StoplistError,
    UnauthorizedOrganization,
)
from stoplist.oauth.model import TokenPair
from stoplist.unsubscribes.model import (
    Batch,
    Index,
    ItemError,
    Name,
    Page,
    Reason,
    Result,
    Slug,
    Status,
    Submission,
)
from stoplist.web.api.query import MAX_SHOWN_CHARS
from stoplist.web.token_forms import FORMS

Json = dict[str, Any]
Types = Iterable[type[msgspec.Struct]]

# Two names of ours that partners know by others.
ENVELOPE, OAUTH_ENVELOPE = "RestErrorResponse", "OAuthErrorResponse"

_READ: Types = (Batch, *FORMS.values())
_ANSWERED: Types = (Submission, Page, TokenPair)
# msgspec sorts the words of an enumeration; people read the usual one first.
_ORDER = {word: at for at, word in enumerate((*get_args(Status), *get_args(Result), *get_args(Reason)))}
_REFERENCE = "#/components/schemas/{name}"
_TEXT = {"type": "string", "description": "What was wrong and what would be right, for people; the wording may change."}


class _AtFault(msgspec.Struct):
    parameter: Annotated[
        Annotated[str, Meta(max_length=MAX_SHOWN_CHARS)] | UnsetType,
        Meta(description="The field or parameter at fault, where it is one."),
    ] = UNSET


class _BadItems(msgspec.Struct):
    item_index: Index
    item_error: Annotated[str, Meta(description="What is wrong with the first of them.")]
    item_errors: Annotated[list[ItemError], Meta(min_length=1, description="All of them.")]


class _NotYours(msgspec.Struct):
    org_slug: Annotated[Name | UnsetType, Meta(description="The organization, as it was sent.")] = UNSET
    group_id: Annotated[Name | UnsetType, Meta(description="The group, as it was sent.")] = UNSET


class _NoDefault(msgspec.Struct):
    org_slug: Slug


class _Fault(msgspec.Struct):
    request_id: Annotated[str, Meta(description="Tell it to the operator: the log holds the rest under it.")]


# What stands in the API's envelope beside the code and the text.
_EXTRA: dict[type[StoplistError], type[msgspec.Struct]] = {
    BadRequest: _AtFault,
    InvalidItem: _BadItems,
    UnauthorizedOrganization: _NotYours,
    DefaultGroupNotConfigured: _NoDefault,
    ServerFault: _Fault,
}


def schemas(api_errors: Iterable[type[StoplistError]], oauth_errors: Iterable[type[StoplistError]]) -> Json:
    """Every schema by its name: of what is sent, what is answered, and each of these refusals."""
    known = _of_types(_READ) | _answered()
    api_errors = list(api_errors)
    known |= {error.__name__: _api_error(error) for error in api_errors}
    known[ENVELOPE] = {"description": "Every refusal of the API.", **one_of(api_errors)}
    known[OAUTH_ENVELOPE] = oauth_error(oauth_errors)
    return known


def reference(name: str) -> Json:
    """A reference to a schema of that name."""
    return {"$ref": _REFERENCE.format(name=name)}


def one_of(errors: Iterable[type[StoplistError]]) -> Json:
    """The envelope of one of these refusals of the API."""
    by_code = {ANSWERS[error].api_code: reference(error.__name__) for error in errors}
    if len(by_code) == 1:
        return next(iter(by_code.values()))
    mapping = {code: schema["$ref"] for code, schema in by_code.items()}
    return {"oneOf": list(by_code.values()), "discriminator": {"propertyName": "error", "mapping": mapping}}


def oauth_error(errors: Iterable[type[StoplistError]]) -> Json:
    """The envelope of one of these refusals of the token endpoint (RFC 6749 section 5.2)."""
    codes = list(dict.fromkeys(ANSWERS[error].oauth_code for error in errors))
    return _object(
        "A refusal of the token endpoint.",
        {"error": {"type": "string", "enum": codes}, "error_description": _TEXT},
    )


def first_paragraph(documented: type) -> str:
    """What the docstring of a type says first, on one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n", 1)[0].split())


def _api_error(error: type[StoplistError]) -> Json:
    envelope = _object(
        first_paragraph(error),
        {"error": {"type": "string", "enum": [ANSWERS[error].api_code]}, "message": _TEXT, "error_description": _TEXT},
    )
    if error in _EXTRA:
        extra = _of_types([_EXTRA[error]])[_EXTRA[error].__name__]
        envelope["properties"] |= extra["properties"]
        envelope["required"] += extra.get("required", [])
    return envelope


def _object(description: str, properties: Json) -> Json:
    return {"description": description, "type": "object", "properties": properties, "required": list(properties)}


def _answered() -> Json:
    """What we send: a field that has a default is there all the same, and only an unset one is not."""
    known = _of_types(_ANSWERED)
    for answered in _ANSWERED:
        fields = msgspec.structs.fields(answered)
        known[answered.__name__]["required"] = [one.encode_name for one in fields if one.default is not UNSET]
    for schema in known.values():
        for field in schema["properties"].values():
            if "default" in field:
                field["example"] = field.pop("default")
    return known


def _of_types(types: Types) -> Json:
    _, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    return {name: _described(_openapi(schema)) for name, schema in components.items()}


def _described(schema: Json) -> Json:
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split("\n\n", 1)[0].split())
    if not schema.get("required"):
        schema.pop("required", None)
    return schema


def _openapi(schema: Any) -> Any:
    """The same in the words of OpenAPI 3.0.3."""
    if isinstance(schema, list):
        return [_openapi(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    words: Json = {
        name: {field: _openapi(inner) for field, inner in value.items()} if name == "properties" else _openapi(value)
        for name, value in schema.items()
        if name != "title" and (name, value) != ("default", None)
    }
    if {"type": "null"} in schema.get("anyOf", ()):
        words = _nullable(words)
    if "const" in words:
        words["enum"] = [words.pop("const")]
    if "enum" in words:
        words["enum"] = sorted(words["enum"], key=lambda word: _ORDER.get(word, len(_ORDER)))
        words.setdefault("type", "string")
    return words


def _nullable(words: Json) -> Json:
    """`anyOf` with null as 3.0.3 says it; an enumeration must then name null itself."""
    others = [one for one in words.pop("anyOf") if one != {"type": "null"}]
    if len(others) != 1:
        raise ValueError("null beside several types cannot be said in OpenAPI 3.0.3")
    if "$ref" in others[0]:
        return {**words, "nullable": True, "allOf": others}
    if "enum" in others[0]:
        others[0]["enum"] = [*others[0]["enum"], None]
    return {**words, **others[0], "nullable": True}
