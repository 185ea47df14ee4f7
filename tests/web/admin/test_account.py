"""Settings → Your account: password, two-step sign-in, sessions. docs/interface.md section D11."""

from xml.etree import ElementTree

import pytest

from stoplist.web.admin.account.account_two_step import qr_picture
from tests.web.admin.creation import (
    TWO_STEP_PATH,
    NewPerson,
    code_of,
    new_person,
    person,
    recovery_codes,
    sign_in,
    turn_two_step_on,
)
from tests.web.admin.pages import PASSWORD, Browser, Form, PageResponse, Pages, email
from tests.web.application import Application

ACCOUNT = "/settings/account"
PASSWORD_PATH, END, END_OTHERS = f"{ACCOUNT}/password", f"{ACCOUNT}/end-session", f"{ACCOUNT}/end-other-sessions"
OFF, CODES = f"{ACCOUNT}/two-step-off", f"{ACCOUNT}/recovery-codes"
CODE_PATH = "/settings/sign-in/code"
ANOTHER = "quite another pass phrase"


def change_password(me: NewPerson, **changes: str) -> PageResponse:
    """Send the form with valid values, except for `changes`."""
    typed = {"current": PASSWORD, "new": ANOTHER, "repeated": ANOTHER} | changes
    return me.browser.send(me.browser.get(ACCOUNT).form(PASSWORD_PATH), **typed)


@pytest.mark.parametrize("name", ["administrator", "admin", "viewer", "nobody"])
def test_every_person_has_an_account_page(pages: Pages, name: str) -> None:
    shown = pages.signed_in(name).get(ACCOUNT)
    assert shown.status == 200
    assert email(name) in shown.text
    assert ("acme (admin)" in shown.text) == (name == "admin")


@pytest.mark.parametrize("path", [ACCOUNT, TWO_STEP_PATH, OFF, CODES])
def test_account_pages_need_a_session_and_are_not_cached(pages: Pages, path: str) -> None:
    assert pages.stranger().get(path).status == 303
    assert pages.signed_in("viewer").get(path).header("cache-control") == "no-store"


# Password.


def test_a_new_password_ends_the_other_sessions(pages: Pages) -> None:
    me = new_person(pages)
    other, _ = sign_in(pages, me.email)
    done = change_password(me)
    assert done.location == f"{ACCOUNT}?note=password-changed"
    assert "Your password was changed" in me.browser.follow(done).text
    assert other.get(ACCOUNT).status == 303
    assert sign_in(pages, me.email)[1].status == 422
    assert sign_in(pages, me.email, ANOTHER)[1].status == 303


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("current", {"current": "not the password"}),
        ("new", {"new": "too short", "repeated": "too short"}),
        ("new", {"new": "x" * 129, "repeated": "x" * 129}),
        ("repeated", {"repeated": ANOTHER + " "}),
    ],
)
def test_a_refused_password_change_names_the_field(pages: Pages, field: str, changes: dict[str, str]) -> None:
    """No password is ever sent back in a page."""
    me = new_person(pages)
    refused = change_password(me, **changes)
    assert refused.status == 422
    assert f'id="{field}-problem"' in refused.html
    for secret in (PASSWORD, ANOTHER, *changes.values()):
        assert f'"{secret}"' not in refused.html
    assert sign_in(pages, me.email)[1].status == 303


def test_white_space_is_part_of_a_password(pages: Pages) -> None:
    me, spaced = new_person(pages), "  twelve or more  "
    assert change_password(me, new=spaced, repeated=spaced).status == 303
    assert sign_in(pages, me.email, spaced.strip())[1].status == 422
    assert sign_in(pages, me.email, spaced)[1].status == 303


def test_guesses_of_the_current_password_are_limited(pages: Pages) -> None:
    """An open session does not allow guessing the password. Section D11."""
    me = new_person(pages)
    answers = [change_password(me, current=f"guess number {number}").status for number in range(11)]
    assert answers == [422] * 10 + [429]
    assert change_password(me).status == 429


# Two-step sign-in.


def test_two_step_sign_in_is_turned_on_with_a_code(pages: Pages) -> None:
    """The recovery codes are shown once; the next sign-in asks for a code."""
    me = new_person(pages)
    assert TWO_STEP_PATH in me.browser.get(ACCOUNT).links
    form = me.browser.get(TWO_STEP_PATH).form(TWO_STEP_PATH)
    secret = dict(form.values)["secret"].partition(".")[0]
    done = me.browser.send(form, code=code_of(pages, secret), password=PASSWORD)
    assert done.status == 200
    assert done.header("cache-control") == "no-store"
    assert "They will not be shown again" in done.text
    assert len(set(recovery_codes(done))) == 10
    assert person(pages, me.email).has_two_step
    browser, asked = sign_in(pages, me.email)
    assert (asked.status, browser.token) == (200, "")
    pages.app.clock.advance(30)
    inside = browser.send(asked.form(CODE_PATH), code=code_of(pages, secret))
    assert inside.status == 303
    assert "On" in browser.get(ACCOUNT).text


def test_a_recovery_code_works_once(pages: Pages) -> None:
    me = new_person(pages)
    _, codes = turn_two_step_on(pages, me.browser)
    statuses = []
    for _ in range(2):
        browser, asked = sign_in(pages, me.email)
        statuses.append(browser.send(asked.form(CODE_PATH), code=codes[0]).status)
    assert statuses == [303, 422]


@pytest.mark.parametrize("code", ["000000", "", "abc", "1" * 500])
def test_a_wrong_code_keeps_the_secret(pages: Pages, code: str) -> None:
    """The app already has this secret; another one would make its entry useless."""
    me = new_person(pages)
    form = me.browser.get(TWO_STEP_PATH).form(TWO_STEP_PATH)
    refused = me.browser.send(form, code=code)
    assert refused.status == 422
    assert 'id="code-problem"' in refused.html
    assert dict(refused.form(TWO_STEP_PATH).values)["secret"] == dict(form.values)["secret"]
    assert not person(pages, me.email).has_two_step


def test_every_request_shows_a_new_secret(pages: Pages) -> None:
    """Nothing is stored before a valid code was sent."""
    me = new_person(pages)
    first, second = (me.browser.get(TWO_STEP_PATH) for _ in range(2))
    secrets = [dict(one.form(TWO_STEP_PATH).values)["secret"].partition(".")[0] for one in (first, second)]
    assert secrets[0] != secrets[1]
    assert f">{secrets[0]}</code>" in first.html


def demanding(pages: Pages, setting: str) -> Pages:
    """The same people with a server that demands two-step sign-in."""
    app = pages.app
    return pages.with_app(Application(app.run, app.database, app.clock, require_two_step=setting))


@pytest.mark.parametrize(
    ("setting", "name", "is_demanded"),
    [
        ("everybody", "viewer", True),
        ("everybody", "administrator", True),
        ("administrators", "administrator", True),
        ("administrators", "admin", False),
        ("nobody", "administrator", False),
    ],
)
def test_a_demanded_second_step_comes_before_every_page(
    pages: Pages, setting: str, name: str, is_demanded: bool
) -> None:
    """STOPLIST_REQUIRE_TWO_STEP, section D1: a form that is sent nevertheless changes nothing."""
    browser = demanding(pages, setting).signed_in(name)
    for path in ("/", ACCOUNT, "/unsubscribes", "/settings/keys"):
        shown = browser.get(path)
        assert (shown.status, shown.location) == ((303, TWO_STEP_PATH) if is_demanded else (200, None))
    form = pages.signed_in(name).get(ACCOUNT).form(PASSWORD_PATH)
    sent = browser.send(form, current="not the password", new=ANOTHER, repeated=ANOTHER)
    assert (sent.status, sent.location) == ((303, TWO_STEP_PATH) if is_demanded else (422, None))


def test_a_demanded_second_step_is_turned_on_and_stays(pages: Pages) -> None:
    """Afterwards every page opens; turning it off is refused, and not offered."""
    me = new_person(pages)
    demanded = Browser(demanding(pages, "everybody").app, me.browser.token)
    assert "needs two-step sign-in" in demanded.get(TWO_STEP_PATH).text
    turn_two_step_on(pages, demanded)
    shown = demanded.get(ACCOUNT)
    assert shown.status == 200
    assert OFF not in shown.links
    refused = demanded.submit_form(OFF, password=PASSWORD)
    assert refused.status == 422
    assert "required of you" in refused.text
    assert person(pages, me.email).has_two_step


def test_a_demanded_second_step_lets_people_sign_out(pages: Pages) -> None:
    me = new_person(pages)
    demanded = Browser(demanding(pages, "everybody").app, me.browser.token)
    assert demanded.send(demanded.get(TWO_STEP_PATH).form("/settings/sign-out")).status == 303
    assert demanded.get(TWO_STEP_PATH).location != TWO_STEP_PATH
    assert demanded.get(TWO_STEP_PATH).status == 303


def test_a_secret_of_another_person_is_refused(pages: Pages) -> None:
    """An unsigned secret is refused too, and one signed for somebody else, who could then generate the codes."""
    me, attacker = new_person(pages), new_person(pages)
    theirs: Form = attacker.browser.get(TWO_STEP_PATH).form(TWO_STEP_PATH)
    foreign = dict(theirs.values)["secret"]
    bare = foreign.partition(".")[0]
    mine = dict(me.browser.get(TWO_STEP_PATH).form(TWO_STEP_PATH).values)["secret"].partition(".")[2]
    for secret in (foreign, bare, f"{bare}.{mine}", f"{bare}.", ""):
        refused = me.browser.post(TWO_STEP_PATH, {"secret": secret, "code": code_of(pages, bare)})
        assert refused.status == 422
        assert "has expired or was opened by somebody else" in refused.text
        assert bare not in refused.html
    assert not person(pages, me.email).has_two_step


def test_sending_the_form_twice_shows_no_codes_again(pages: Pages) -> None:
    me = new_person(pages)
    form = me.browser.get(TWO_STEP_PATH).form(TWO_STEP_PATH)
    code = code_of(pages, dict(form.values)["secret"].partition(".")[0])
    codes = recovery_codes(me.browser.send(form, code=code, password=PASSWORD))
    again = me.browser.send(form, code=code, password=PASSWORD)
    assert again.status == 422
    assert recovery_codes(again) == []
    assert CODES in again.links
    for path in (TWO_STEP_PATH, ACCOUNT, CODES):
        html = me.browser.get(path).html
        assert not any(code in html for code in codes)


def test_turning_two_step_sign_in_off_needs_the_password(pages: Pages) -> None:
    me = new_person(pages)
    turn_two_step_on(pages, me.browser)
    assert OFF in me.browser.get(ACCOUNT).links
    assert "sign in with your password only" in me.browser.get(OFF).text
    refused = me.browser.submit_form(OFF, password="not the password")
    assert refused.status == 422
    assert 'id="password-problem"' in refused.html
    assert person(pages, me.email).has_two_step
    assert me.browser.submit_form(OFF, password=PASSWORD).location == f"{ACCOUNT}?note=two-step-off"
    assert sign_in(pages, me.email)[1].status == 303


def test_new_recovery_codes_need_the_password(pages: Pages) -> None:
    """The old codes stop working."""
    me = new_person(pages)
    _, before = turn_two_step_on(pages, me.browser)
    refused = me.browser.submit_form(CODES, password="not the password")
    assert refused.status == 422
    assert 'id="password-problem"' in refused.html
    made = me.browser.submit_form(CODES, password=PASSWORD)
    assert made.status == 200
    after = recovery_codes(made)
    assert len(set(after) - set(before)) == 10
    for code, status in ((before[0], 422), (after[0], 303)):
        browser, asked = sign_in(pages, me.email)
        assert browser.send(asked.form(CODE_PATH), code=code).status == status


@pytest.mark.parametrize("path", [OFF, CODES])
def test_without_two_step_sign_in_there_are_no_forms(pages: Pages, path: str) -> None:
    shown = new_person(pages).browser.get(path)
    assert "sign-in is off" in shown.text
    assert shown.forms[1:] == []


def test_the_qr_code_is_black_on_white_without_styles() -> None:
    """Four modules of quiet zone surround it (ISO/IEC 18004), on dark pages too. The policy forbids styles."""
    picture = qr_picture("otpauth://totp/Stoplist:a@b.example?secret=" + "A" * 32)
    root = ElementTree.fromstring(picture)  # noqa: S314 - drawn here
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    ground, code = list(root)
    assert (ground.attrib["fill"], code.attrib["stroke"]) == ("#fff", "#000")
    assert ground.attrib["d"].startswith(f"M0 0h{width:g}v{height:g}")
    assert code.attrib["d"].startswith("M4 4.5h7")
    assert "style" not in {name for part in root.iter() for name in part.attrib}


# Sessions.


def forms_to_end(browser: Browser) -> list[Form]:
    return [form for form in browser.get(ACCOUNT).forms if form.action == END]


def test_a_person_ends_another_of_their_sessions(pages: Pages) -> None:
    """The current session is marked and has no button."""
    me = new_person(pages)
    assert "This browser" in me.browser.get(ACCOUNT).text
    assert forms_to_end(me.browser) == []
    other, _ = sign_in(pages, me.email)
    (form,) = forms_to_end(me.browser)
    done = me.browser.send(form)
    assert done.location == f"{ACCOUNT}?note=session-ended"
    assert other.get(ACCOUNT).status == 303
    assert me.browser.get(ACCOUNT).status == 200
    assert me.browser.send(form).status == 404


def test_a_person_ends_all_other_sessions(pages: Pages) -> None:
    me = new_person(pages)
    others = [sign_in(pages, me.email)[0] for _ in range(2)]
    done = me.browser.send(me.browser.get(ACCOUNT).form(END_OTHERS))
    assert done.location == f"{ACCOUNT}?note=sessions-ended"
    assert [one.get(ACCOUNT).status for one in others] == [303, 303]
    shown = me.browser.follow(done)
    assert "All your other sessions have ended." in shown.text
    assert END_OTHERS not in [form.action for form in shown.forms]


def test_nobody_ends_sessions_of_others_from_their_account(pages: Pages) -> None:
    """404, as for a session that does not exist."""
    me, other = new_person(pages), new_person(pages)
    sign_in(pages, other.email)
    (form,) = forms_to_end(other.browser)
    assert me.browser.send(form).status == 404
    assert len(forms_to_end(other.browser)) == 1
