"""Advice on the page of a key about refused requests, by error code and by the rights of the person."""

import pytest

from stoplist.errors import ANSWERS, InvalidToken
from stoplist.oauth.usage import RefusedRequest
from stoplist.web.admin.keys.refusal_advice import ADVISED_CODES, advice_on
from tests.constants import HOUR_S
from tests.web.admin.creation import new_person
from tests.web.admin.opt_outs import clock_of, new_organization
from tests.web.admin.pages import Pages


def test_every_code_has_advice() -> None:
    """Each code of section D4 and of the token endpoint that a known key can get."""
    codes = {code for error, answer in ANSWERS.items() if error is not InvalidToken for code in answer[1:]}
    assert codes <= ADVISED_CODES
    assert advice_on("teapot", may_change=True, is_administrator=True)


@pytest.mark.parametrize("code", sorted(ADVISED_CODES))
def test_advice_fits_the_rights_of_the_reader(code: str) -> None:
    """Only those who may change the key are told to."""
    reader = advice_on(code, may_change=False, is_administrator=False)
    admin = advice_on(code, may_change=True, is_administrator=False)
    administrator = advice_on(code, may_change=True, is_administrator=True)
    assert "You can" not in reader
    assert "rotate it or replace" not in reader.replace("an admin can rotate it or replace", "")
    assert ("raise the rate limits under" in administrator) == (code == "rate_limited")
    assert "raise the rate limits under" not in admin
    for text in (reader, admin, administrator):
        assert text.endswith(".")


def test_refusals_are_shown_by_hour_and_code(pages: Pages) -> None:
    """One line instead of a wall of equal ones, with what to do; the request IDs are folded away."""
    partner = new_organization(pages)
    path = f"/settings/keys/{partner.key.client_id}"
    wrong = {"client_id": partner.key.client_id, "client_secret": "svc_cs_wrong", "grant_type": "client_credentials"}
    first = [pages.app.ask_token(wrong) for _ in range(12)]
    clock_of(pages).advance(HOUR_S)
    second = [pages.app.ask_token(wrong) for _ in range(3)]
    viewer, admin = (new_person(pages, roles={partner.slug: role}).browser.get(path) for role in ("viewer", "admin"))
    table = admin.html.partition('aria-label="Refused requests by hour and error code"')[2].partition("</table>")[0]
    assert table.count("<tr ") == 1 + 3
    assert table.count("The secret was wrong or missing") == 1
    assert table.count("As above") == 1
    assert "An administrator can raise the rate limits." in admin.text
    assert "rotate it or replace the key" in admin.text
    assert "an admin can rotate it or replace the key" in viewer.text
    for answer in (*first, *second):
        assert str(answer.header("x-request-id")) in admin.html
    assert "<summary>Show request IDs</summary>" in admin.html


def test_a_code_from_an_older_release_has_advice_too(pages: Pages) -> None:
    """Any stored code is shown."""
    partner = new_organization(pages)
    refusal = RefusedRequest(pages.app.clock.now_ms(), "ab" * 12, "teapot")
    pages.app.usage.note(
        partner.key.client_id,
        now_ms=refusal.at_ms,
        is_authenticated=True,
        error=refusal.code,
        request_id=refusal.request_id,
    )
    shown = pages.signed_in("administrator").get(f"/settings/keys/{partner.key.client_id}")
    assert "teapot" in shown.text
    assert "The error description tells the partner what is wrong." in shown.text
