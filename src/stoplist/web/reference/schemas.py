"""The schemas of the description, generated from the types that the code decodes and encodes.

msgspec generates JSON Schema 2020-12; OpenAPI 3.0.3 spells null, constants and examples differently.
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
    SentReason,
    Slug,
    Status,
    Submission,
)
from stoplist.web.api.query import MAX_SHOWN_CHARS
from stoplist.web.token_forms import FORMS

Json = dict[str, Any]
Types = Iterable[type[msgspec.Struct]]

# Enumerations with a schema of their own, which clients are generated from as one type each.
_ENUMERATIONS = {"Status": Status, "SentReason": SentReason, "Reason": Reason, "Result": Result}
_NAMES = {frozenset(get_args(values)): name for name, values in _ENUMERATIONS.items()}
# OpenAPI 3.0.3 has no type for null: this is a text whose only value is null.
_NULL = {"type": "string", "nullable": True, "enum": [None]}
# Refused together. With `group_id: null`, or `all_groups: false`, the other may be sent.
_GROUP_AND_ALL = {
    "required": ["group_id", "all_groups"],
    "properties": {"group_id": {"type": "string"}, "all_groups": {"type": "boolean", "enum": [True]}},
}
# Two schema names that differ from the names in the code.
ENVELOPE, OAUTH_ENVELOPE = "RestErrorResponse", "OAuthErrorResponse"

_READ: Types = (Batch, *FORMS.values())
_ANSWERED: Types = (Submission, Page, TokenPair)
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
    request_id: Annotated[str, Meta(description="Quote it to the operator, who finds the details under it in the log.")]


# The additional fields in the envelope of the API.
_EXTRA: dict[type[StoplistError], type[msgspec.Struct]] = {
    BadRequest: _AtFault,
    InvalidItem: _BadItems,
    UnauthorizedOrganization: _NotYours,
    DefaultGroupNotConfigured: _NoDefault,
    ServerFault: _Fault,
}


def schemas(api_errors: Iterable[type[StoplistError]], oauth_errors: Iterable[type[StoplistError]]) -> Json:
    """Return every schema by name: of requests, of answers, and of each of these refusals."""
    by_name = _of_types(_READ) | _answered()
    by_name["Batch"]["not"] = _GROUP_AND_ALL
    by_name |= {name: {"type": "string", "enum": list(get_args(values))} for name, values in _ENUMERATIONS.items()}
    by_name[ENVELOPE] = _object(
        "What every refusal of the API has.",
        {
            "error": {"type": "string", "description": "The code, which never changes."},
            "message": _TEXT,
            "error_description": {"type": "string", "description": "The same text as `message`."},
        },
    )
    by_name |= {error.__name__: _api_error(error) for error in api_errors}
    by_name[OAUTH_ENVELOPE] = oauth_error(oauth_errors)
    return by_name


def reference(name: str) -> Json:
    """Return a reference to the schema with this name."""
    return {"$ref": _REFERENCE.format(name=name)}


def one_of(errors: Iterable[type[StoplistError]]) -> Json:
    """Return the schema of any one of these refusals of the API."""
    by_code = {ANSWERS[error].api_code: reference(error.__name__) for error in errors}
    if len(by_code) == 1:
        return next(iter(by_code.values()))
    mapping = {code: schema["$ref"] for code, schema in by_code.items()}
    return {"oneOf": list(by_code.values()), "discriminator": {"propertyName": "error", "mapping": mapping}}


def oauth_error(errors: Iterable[type[StoplistError]]) -> Json:
    """Return the schema of any one of these refusals of the token endpoint (RFC 6749 section 5.2)."""
    codes = list(dict.fromkeys(ANSWERS[error].oauth_code for error in errors))
    return _object(
        "A refusal of the token endpoint.",
        {"error": {"type": "string", "enum": codes}, "error_description": _TEXT},
    )


def first_paragraph(documented: type) -> str:
    """Return the first paragraph of a type's docstring, on one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n", 1)[0].split())


def _api_error(error: type[StoplistError]) -> Json:
    """Return the envelope with the one code of this refusal, and its additional fields."""
    own: Json = {
        "type": "object",
        "properties": {"error": {"type": "string", "enum": [ANSWERS[error].api_code]}},
        "required": ["error"],
    }
    if error in _EXTRA:
        extra = _of_types([_EXTRA[error]])[_EXTRA[error].__name__]
        own["properties"] |= extra["properties"]
        own["required"] += extra.get("required", [])
    return {"description": first_paragraph(error), "allOf": [reference(ENVELOPE), own]}


def _object(description: str, properties: Json) -> Json:
    return {"description": description, "type": "object", "properties": properties, "required": list(properties)}


def _answered() -> Json:
    """Return the schemas of answers, in which a field with a default is always present unless it may be unset."""
    answered = _of_types(_ANSWERED)
    for type_ in _ANSWERED:
        fields = msgspec.structs.fields(type_)
        answered[type_.__name__]["required"] = [field.encode_name for field in fields if field.default is not UNSET]
    for schema in answered.values():
        for field in schema["properties"].values():
            if "default" in field:
                field["example"] = field.pop("default")
    return answered


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
    """Convert JSON Schema 2020-12 to the keywords of OpenAPI 3.0.3."""
    if isinstance(schema, list):
        return [_openapi(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    converted: Json = {
        name: {field: _openapi(inner) for field, inner in value.items()} if name == "properties" else _openapi(value)
        for name, value in schema.items()
        if name != "title" and (name, value) != ("default", None)
    }
    if {"type": "null"} in schema.get("anyOf", ()):
        converted = _nullable(converted)
    if "const" in converted:
        converted["enum"] = [converted.pop("const")]
    if "enum" in converted:
        converted.setdefault("type", "string")
    if name := _NAMES.get(frozenset(converted.get("enum", ()))):
        del converted["enum"], converted["type"]
        # Keywords beside a reference are ignored, so it stands apart from a description.
        return {**converted, "allOf": [reference(name)]} if converted else reference(name)
    return converted


def _nullable(schema: Json) -> Json:
    """Convert `anyOf` with null to `nullable`, or beside a reference to a choice."""
    others = [other for other in schema.pop("anyOf") if other != {"type": "null"}]
    if len(others) != 1:
        raise ValueError("OpenAPI 3.0.3 cannot express null beside several types")
    if "$ref" in others[0]:
        return {**schema, "oneOf": [*others, _NULL]}
    return {**schema, **others[0], "nullable": True}
