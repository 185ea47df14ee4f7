"""Decoding of answers. Sources: docs/interface.md sections 7, D2 and D4."""

import msgspec
import pytest
from stoplist_client import errors
from stoplist_client.errors import BY_CODE, ApiError, InvalidItem, NotUnderstood
from stoplist_client.flows.answers import decode_answer, refusal

from stoplist.errors import ANSWERS
from tests.client.flow_runner import answer


class Redacted(msgspec.Struct):
    number: int


SHAPE = msgspec.json.Decoder(Redacted)


def test_every_code_of_the_service_has_a_class() -> None:
    """The client knows exactly the codes that the server can return."""
    answers = ANSWERS.values()
    assert set(BY_CODE) == {code for row in answers for code in (row.api_code, row.oauth_code)}


def test_refusal_of_the_api_is_decoded() -> None:
    """Status, code, text, parameter, organization and group, request id and Retry-After."""
    body = {
        "error": "unauthorized_organization",
        "message": "Not yours.",
        "error_description": "Not yours.",
        "org_slug": "acme",
        "group_id": "grp_1",
        "parameter": "group_id",
        "something_new": [1],
    }
    error = refusal(answer(403, body, x_request_id="req_1", retry_after="7"))
    assert isinstance(error, errors.UnauthorizedOrganization)
    assert (error.status, error.code, error.text) == (403, "unauthorized_organization", "Not yours.")
    assert (error.org_slug, error.group_id, error.parameter) == ("acme", "grp_1", "group_id")
    assert (error.request_id, error.retry_after_s) == ("req_1", 7)
    assert str(error) == "403 unauthorized_organization: Not yours. (request req_1)"


def test_refusal_of_the_token_endpoint_is_decoded() -> None:
    """Its body has only `error_description`."""
    error = refusal(answer(401, {"error": "invalid_client", "error_description": "Wrong secret."}))
    assert isinstance(error, errors.InvalidClient)
    assert str(error) == "401 invalid_client: Wrong secret."


def test_item_errors_have_the_indexes_of_the_call() -> None:
    """They have the items as they were given; a wrong index is left out."""
    told = [{"item_index": 1, "item_error": "No @."}, {"item_index": 7, "item_error": "Nonsense."}]
    body = {"error": "invalid_item", "item_index": 1, "item_error": "No @.", "item_errors": told}
    error = refusal(answer(400, body), items=["a@example.com", "b"], indexes=[30, 31])
    assert isinstance(error, InvalidItem)
    assert [(bad.item_index, bad.item, bad.item_error) for bad in error.item_errors] == [(31, "b", "No @.")]


def test_unknown_code_is_an_api_error() -> None:
    """A code that this release does not know keeps its name."""
    error = refusal(answer(418, {"error": "teapot", "message": "Short and stout."}))
    assert type(error) is ApiError
    assert (error.code, str(error)) == ("teapot", "418 teapot: Short and stout.")


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"<!DOCTYPE html><HTML>", b"[]", b'"error"', {"error": 5}, {"message": "no code"}]
)
def test_foreign_refusal_is_not_understood(body: object) -> None:
    """The message has the status and a remedy, and nothing of the body."""
    error = refusal(answer(502, body, x_request_id="req_2"))
    assert isinstance(error, NotUnderstood)
    assert (error.status, error.request_id) == (502, "req_2")
    assert "502" in str(error)
    assert "base_url" in str(error)


@pytest.mark.parametrize("nested", [b"[" * 200_000, b'{"a":' * 200_000], ids=["lists", "objects"])
def test_deep_nesting_is_not_understood(nested: bytes) -> None:
    """It may be in a field that nobody reads, where the decoder gives up with a RecursionError."""
    body = b'{"unread": ' + nested
    with pytest.raises(NotUnderstood):
        decode_answer(answer(200, body), SHAPE)
    assert isinstance(refusal(answer(500, body)), NotUnderstood)


def test_redirect_is_named() -> None:
    assert "redirect (308)" in str(refusal(answer(308, b"", location="https://elsewhere.example")))


@pytest.mark.parametrize("body", [b"", b"\xff", b"<html>", {"number": "1"}, {}, [1]])
def test_200_of_another_shape_is_not_understood(body: object) -> None:
    """The error contains nothing of the body."""
    with pytest.raises(NotUnderstood) as caught:
        decode_answer(answer(200, body), SHAPE)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_unknown_fields_are_ignored() -> None:
    """A later release of the service may add fields."""
    assert decode_answer(answer(200, {"number": 1, "new": {}}), SHAPE).number == 1
