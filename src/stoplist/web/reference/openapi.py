"""The description of the public interface: one OpenAPI 3.0.3 document of seven operations.

Schemas come from the types that the code uses, limits from its constants, refusals from its table of errors.
Source: docs/interface.md sections 4.3 and D10.
"""

import msgspec

from stoplist import __version__
from stoplist.unsubscribes.channel import CHANNELS, Channel
from stoplist.unsubscribes.model import DEFAULT_LIMIT, MAX_LIMIT, MAX_LOOK_UPS, MAX_NAME_CHARS
from stoplist.web.api.prefer import MAX_WAIT_S
from stoplist.web.api.unsubscribe import path_of
from stoplist.web.reference import answers, examples, prose, samples, schemas
from stoplist.web.reference.schemas import Json, reference
from stoplist.web.request_context import TOKEN_PATH
from stoplist.web.token_forms import FORMS

_FORM = "application/x-www-form-urlencoded"
_TOKENS = "Tokens"
_PREFER_FOLLOWING: Json = {
    "name": "Prefer",
    "in": "header",
    "description": f"`wait=N`, 1 to {MAX_WAIT_S} seconds (RFC 7240), with a `cursor`: if nothing has changed, hold the "
    "answer until something has, or N seconds have passed. `read-ahead`: the page before has not been stored yet, so "
    "the `cursor` says nothing about what has. Both may be sent, with a comma between.",
    "schema": {"type": "string"},
    "examples": {
        "wait": {"value": f"wait={MAX_WAIT_S}"},
        "read-ahead": {"value": "read-ahead"},
        "both": {"value": f"wait={MAX_WAIT_S}, read-ahead"},
    },
}
_PREFER: Json = {
    "name": "Prefer",
    "in": "header",
    "description": "`handling=lenient`: store the good items of a batch that has bad ones. `return=minimal`: answer "
    "without `items`. Both may be sent, with a comma between (RFC 7240).",
    "schema": {"type": "string"},
    "examples": {
        "lenient": {"value": "handling=lenient"},
        "minimal": {"value": "return=minimal"},
        "both": {"value": "handling=lenient, return=minimal"},
    },
}


def document(base_url: str) -> Json:
    """Return the OpenAPI document of the server at `base_url`, an address without a trailing slash."""
    api_errors = dict.fromkeys((*answers.SUBMIT_ERRORS, *answers.READ_ERRORS))
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Stoplist API",
            "version": __version__,
            "description": prose.introduction(),
            "contact": {"name": "The operator of this server"},
            "license": {"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "servers": [{"url": base_url}],
        "tags": [
            {"name": _TOKENS, "description": "Access to the API."},
            *({"name": channel.title, "description": channel.description} for channel in CHANNELS.values()),
        ],
        "paths": {
            TOKEN_PATH: {"post": _get_tokens(base_url)},
            **{
                path_of(channel): {"get": _list(base_url, channel), "post": _submit(base_url, channel)}
                for channel in CHANNELS.values()
            },
        },
        "components": {
            "schemas": schemas.schemas(api_errors, answers.TOKEN_ERRORS),
            "headers": answers.HEADERS,
            "securitySchemes": _security_schemes(base_url),
        },
    }


def encoded(base_url: str) -> bytes:
    """Return the document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document(base_url))) + b"\n"


def _get_tokens(base_url: str) -> Json:
    forms = {grant: reference(form.__name__) for grant, form in FORMS.items()}
    mapping = {grant: schema["$ref"] for grant, schema in forms.items()}
    schema = {"oneOf": list(forms.values()), "discriminator": {"propertyName": "grant_type", "mapping": mapping}}
    pair = {"A pair": msgspec.to_builtins(examples.TOKEN_PAIR)}
    return {
        "operationId": "getTokens",
        "tags": [_TOKENS],
        "summary": "Get tokens",
        "description": prose.get_tokens(),
        "security": [{"basic": []}, {}],
        "requestBody": {
            "required": True,
            "content": {_FORM: {"schema": schema, "examples": answers.named(examples.FORMS)}},
        },
        "responses": {
            **answers.success("A new pair of tokens.", reference("TokenPair"), pair),
            **answers.oauth_refusals(answers.TOKEN_ERRORS, examples.OAUTH_ERRORS),
        },
        "x-codeSamples": samples.get_tokens(base_url + TOKEN_PATH),
    }


def _list(base_url: str, channel: Channel) -> Json:
    pages = examples.pages(channel)
    refusals = (examples.BAD_QUERY, *examples.API_ERRORS)
    return {
        "operationId": f"list{channel.name.title()}Unsubscribes",
        "tags": [channel.title],
        "summary": f"List, look up and follow {channel.in_sentence} opt-outs",
        "description": prose.list_unsubscribes(channel),
        "security": [{"oauth2": []}],
        "parameters": [*_query_parameters(channel), _PREFER_FOLLOWING],
        "responses": {
            **answers.success(
                "Records, each at its latest change.", reference("Page"), pages, optional=("Preference-Applied",)
            ),
            **answers.api_refusals(answers.READ_ERRORS, refusals),
        },
        "x-codeSamples": samples.list_unsubscribes(base_url + path_of(channel), channel),
    }


def _submit(base_url: str, channel: Channel) -> Json:
    batches = answers.named(examples.batches(channel))
    refusals = (examples.BAD_BATCH, examples.invalid_item(channel), *examples.API_ERRORS)
    return {
        "operationId": f"submit{channel.name.title()}Unsubscribes",
        "tags": [channel.title],
        "summary": f"Submit {channel.in_sentence} opt-outs",
        "description": prose.submit_unsubscribes(channel),
        "security": [{"oauth2": []}],
        "parameters": [_PREFER],
        "requestBody": {
            "required": True,
            "content": {answers.JSON: {"schema": reference("Batch"), "examples": batches}},
        },
        "responses": {
            **answers.success(
                "What became of the batch, which is stored durably.",
                reference("Submission"),
                examples.submissions(channel),
                optional=("Preference-Applied",),
            ),
            **answers.api_refusals(answers.SUBMIT_ERRORS, refusals),
        },
        "x-codeSamples": samples.submit_unsubscribes(base_url + path_of(channel), channel),
    }


def _query_parameters(channel: Channel) -> list[Json]:
    name = {"type": "string", "maxLength": MAX_NAME_CHARS}
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
    addresses = {"type": "array", "items": {"type": "string"}, "maxItems": MAX_LOOK_UPS}
    return [
        _query("org_slug", "The organization; by default the group's, else the default one of the key.", name),
        _query("group_id", "Only the records that bear on this group: its own and the all-groups ones.", name),
        _query("limit", "How many records a page may hold. Changes nothing beside `address`.", limit),
        _query(
            "cursor",
            "A `next_cursor` from before: only what changed since. Not together with `address`.",
            {"type": "string"},
        ),
        _query(
            "address", "An address to look up, in any spelling; may be repeated. Not together with `cursor`.", addresses
        ),
    ]


def _query(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _security_schemes(base_url: str) -> Json:
    token_url = base_url + TOKEN_PATH
    return {
        "oauth2": {
            "type": "oauth2",
            "description": "An access token, sent as `Authorization: Bearer`. What it may do are the permissions of "
            "its key; there are no scopes to ask for.",
            "flows": {"clientCredentials": {"tokenUrl": token_url, "refreshUrl": token_url, "scopes": {}}},
        },
        "basic": {
            "type": "http",
            "scheme": "basic",
            "description": "HTTP Basic with the `client_id` and `client_secret` of a key (`client_secret_basic`).",
        },
    }
