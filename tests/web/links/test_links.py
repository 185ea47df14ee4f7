"""The page behind an opt-out link, and one-click opt-outs (docs/interface.md section D15; RFC 8058)."""

import asyncio
import base64
import hashlib
import itertools
import re
from collections import Counter

import pytest
from stoplist_addresses.link_tokens import LinkContent, LinkKey

from stoplist import ids
from stoplist.errors import StoreUnavailable
from stoplist.links.keys import retire_link_key, revoke_link_key
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization, set_link_page
from tests.builders import ADMINISTRATOR, execute, value
from tests.web.application import Application
from tests.web.links.clicks import ANN, ONE_CLICK, Sender, fields_of, text_of

MULTIPART = b'--x\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--x--\r\n'
OTHER_GROUP = "grp_0000000000000000000000"


def test_opening_a_link_writes_nothing(sender: Sender) -> None:
    """GET and HEAD write nothing, however often they come: mail scanners follow every link."""
    path = sender.link(group_id=sender.group_id)
    for method in ("GET", "HEAD", "GET"):
        assert sender.get(path, method=method).status == 200
    assert sender.submissions() == []
    assert sender.records() == []


def test_the_page_asks_and_says_for_whom(sender: Sender) -> None:
    """Names are escaped; of the address only what its owner recognises is shown, in a fixed number of bullets."""
    answer = sender.get(sender.link(group_id=sender.group_id))
    assert fields_of(answer, "choice") == ["group", "all"]
    assert "Märzbrief &lt;1&gt;" in answer.body.decode()
    assert "a••••@e••••.com" in text_of(answer)
    assert ANN not in answer.body.decode()
    assert 'all <span class="word">e-mail</span> from' in answer.body.decode()
    assert fields_of(sender.get(sender.link()), "choice") == ["all"]
    assert "••••67" in text_of(sender.get(sender.link("+442079460967", channel="sms")))


def test_the_page_loads_and_keeps_nothing(sender: Sender) -> None:
    """No script, no cookie, no outside resource; its one style sheet is allowed by its hash."""
    answer = sender.get(sender.link())
    page = answer.body.decode()
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    policy = answer.header("content-security-policy") or ""
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    digest = hashlib.sha256(style.encode()).digest()
    assert f"'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert not re.search(r"<script|src=|href=|url\(|@import|style=", page)
    for name, expected in (
        ("referrer-policy", "no-referrer"),
        ("x-robots-tag", "noindex"),
        ("cache-control", "no-store"),
        ("set-cookie", None),
    ):
        assert answer.header(name) == expected


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (ONE_CLICK, "application/x-www-form-urlencoded"),
        (MULTIPART, "multipart/form-data; boundary=x"),
        (b"", ""),
        (b"\xff\xfe\0", "application/octet-stream"),
        (b"a=" * 200, "application/x-www-form-urlencoded"),
        (b"x" * 70_000, "text/plain"),
        (b"choice=everything", "application/x-www-form-urlencoded"),
        (b"{}", "application/json"),
    ],
)
def test_whatever_is_posted_is_a_one_click_opt_out(sender: Sender, body: bytes, content_type: str) -> None:
    """200 with a short text, no redirect and no cookie; stored before the answer."""
    answer = sender.post(sender.link(group_id=sender.group_id), body, content_type=content_type)
    assert (answer.status, answer.body) == (200, b"You are unsubscribed.\n")
    assert (answer.header("location"), answer.header("set-cookie")) == (None, None)
    assert sender.records() == [(ANN, 1, "unsubscribed", "unsubscribe", "one_click")]
    (submission,) = sender.submissions()
    assert (submission["actor_kind"], submission["actor_id"]) == ("link", sender.key.key_id)
    assert submission["received"] == submission["created"] == 1


def test_a_late_body_is_a_one_click_opt_out(sender: Sender) -> None:
    answer = sender.post(sender.link(), b"x" * 5_000, meanwhile=too_late)
    assert (answer.status, len(sender.records())) == (200, 1)


def test_the_choices_of_the_page_are_stored(sender: Sender) -> None:
    """Then the page confirms, and no longer offers what was chosen."""
    path = sender.link(group_id=sender.group_id, source="march")
    chosen = sender.post(path, {"choice": "group"})
    assert (chosen.status, fields_of(chosen, "choice")) == (200, ["all"])
    assert "You are unsubscribed" in text_of(chosen)
    assert fields_of(sender.get(path), "choice") == ["all"]
    sender.app.clock.advance(5)
    everything = sender.post(path, {"choice": "all"})
    assert (everything.status, fields_of(everything, "choice")) == (200, [])
    assert fields_of(sender.get(path), "choice") == []
    assert sender.records() == [
        (ANN, 1, "unsubscribed", "unsubscribe", "march"),
        (ANN, 0, "unsubscribed", "unsubscribe", "march"),
    ]


def test_a_link_that_names_no_group_of_ours_is_for_all(sender: Sender) -> None:
    """A click cannot be refused as a request can."""
    foreign = Sender.on(sender.app).group_id
    for number, group_id in enumerate((None, foreign, OTHER_GROUP, "news\0letter", "x" * 40)):
        assert sender.post(sender.link(f"p{number}@example.com", group_id=group_id)).status == 200
    assert [group_no for _, group_no, *_ in sender.records()] == [0, 0, 0, 0, 0]


def test_retired_groups_and_closed_organizations_accept(sender: Sender) -> None:
    """They get no requests any more, but their old messages are still in mailboxes."""
    app = sender.app
    app.run(retire_group(ADMINISTRATOR, app.database, app.clock, group_id=sender.group_id))
    app.run(close_organization(ADMINISTRATOR, app.database, app.clock, slug=sender.slug))
    path = sender.link(group_id=sender.group_id)
    assert fields_of(sender.get(path), "choice") == ["group", "all"]
    assert sender.post(path).status == 200
    assert [(group_no, status) for _, group_no, status, *_ in sender.records()] == [(1, "unsubscribed")]


def test_a_second_click_within_a_second_stores_nothing(sender: Sender) -> None:
    """A later one is stored, as no confirmation in the sense of others: only the same link key repeated it."""
    path = sender.link()
    for _ in range(3):
        assert sender.post(path).status == 200
        sender.app.clock.advance(0.5)
    assert len(sender.submissions()) == 1
    sender.app.clock.advance(1)
    assert sender.post(path).status == 200
    assert [one["unchanged"] for one in sender.submissions()] == [0, 1]
    (record,) = sender.rows("unsubscribes", "seq")
    assert (record["latest_act_ms"], record["is_confirmed"]) == (sender.clock.now_ms(), 2)


def test_every_address_of_a_channel_is_made_canonical(sender: Sender) -> None:
    """Other makers of links may write it as the person did."""
    assert sender.post(sender.link(" Ann@Example.COM ")).status == 200
    assert [address for address, *_ in sender.records()] == [ANN]


@pytest.mark.parametrize(("address", "channel"), [("ann", "email"), ("", "email"), (ANN, "fax"), ("123", "sms")])
def test_a_link_without_an_address_is_never_answered_200(sender: Sender, address: str, channel: str) -> None:
    """The page has the contact line; the click is logged, counted, and shown to the operator."""
    app, path = sender.app, sender.link(address, channel=channel)
    app.run(
        set_link_page(
            ADMINISTRATOR, app.database, app.clock, slug=sender.slug, contact_line="privacy@a.example", accent_colour=""
        )
    )
    assert (sender.get(path).status, sender.post(path).status) == (422, 422)
    assert "privacy@a.example" in text_of(sender.get(path))
    assert sender.submissions() == []
    app.run(app.parts.link_events.flush(app.database))
    unusable = "SELECT unusable FROM link_keys WHERE link_key_id = :id"
    assert app.run(value(app.database, unusable, id=sender.key.key_id)) == 3


def test_texts_that_nobody_made_get_one_page(sender: Sender) -> None:
    """Unknown, altered and foreign tokens: 404, the same page for all, whatever is posted."""
    other = Sender.on(sender.app)
    token = sender.link().removeprefix("/u/")
    moved = token[:2] + other.link().removeprefix("/u/")[2:14] + token[14:]
    of_nobody = LinkKey(ids.new_secret(ids.LINK_KEY)).token(LinkContent("email", None, ANN))
    bodies = {
        (answer.status, answer.body)
        for text in ("x", "", token[:-1], token + "A", moved, of_nobody, "a/b", "..%2f")
        for answer in (sender.get(f"/u/{text}"),)
    }
    assert [status for status, _ in bodies] == [404]
    assert (sender.post(f"/u/{moved}").status, sender.post(f"/u/{of_nobody}").status) == (404, 404)
    assert sender.records() == []


def test_failures_are_limited_by_source_and_good_links_are_not(sender: Sender) -> None:
    """60 a minute; mailbox providers click for millions of people from few addresses."""
    source = "198.51.100.77"
    statuses = [sender.get("/u/x", peer=source).status for _ in range(62)]
    assert statuses == [404] * 60 + [429, 429]
    refused = sender.get("/u/x", peer=source)
    assert refused.header("retry-after") == "60"
    assert "try again in a minute" in text_of(refused)
    assert sender.post(sender.link(), peer=source).status == 200
    assert sender.get("/u/x", peer="198.51.100.78").status == 404


def test_links_of_a_retired_key_work_and_of_a_revoked_do_not(sender: Sender) -> None:
    """410 with the contact line; the people turned away are counted once each."""
    app, key_id = sender.app, sender.key.key_id
    contact = {"slug": sender.slug, "contact_line": "privacy@a.example", "accent_colour": ""}
    app.run(set_link_page(ADMINISTRATOR, app.database, app.clock, **contact))
    app.run(retire_link_key(ADMINISTRATOR, app.database, app.clock, link_key_id=key_id))
    assert sender.post(sender.link()).status == 200
    app.run(revoke_link_key(ADMINISTRATOR, app.database, app.clock, link_key_id=key_id))
    for path in (sender.link(), sender.link(), sender.link("bob@example.com")):
        assert (sender.get(path).status, sender.post(path).status) == (410, 410)
    assert "privacy@a.example" in text_of(sender.get(sender.link()))
    assert len(sender.submissions()) == 1
    app.run(app.parts.link_events.flush(app.database))
    turned_away = "SELECT turned_away FROM link_keys WHERE link_key_id = :id"
    assert app.run(value(app.database, turned_away, id=key_id)) == 2
    assert sender.get(sender.link()[:-4] + "AAAA").status == 404


def test_a_key_that_this_process_cannot_read_is_a_503(sender: Sender) -> None:
    """Never 404: the mailbox provider tries again, and another host may read it."""
    app = sender.app
    other = Application(app.run, app.database, app.clock, secret_keys=("another key of this host, 32 chars",))
    for method in ("GET", "POST"):
        answer = other.request(method, sender.link())
        assert answer.status == 503
        assert answer.header("retry-after")
        assert "Please try again" in text_of(answer)
    assert sender.submissions() == []


async def away(*_: object, **__: object) -> None:
    """Stand in for a database that cannot be reached."""
    raise StoreUnavailable("The database is away.")


def test_a_database_that_is_away_is_a_503(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says to try again."""
    path = sender.link()
    monkeypatch.setattr(type(sender.app.database), "rows", away)
    for answer in (sender.get(path), sender.post(path)):
        assert (answer.status, answer.header("content-type")) == (503, "text/html; charset=utf-8")
        assert "Please try again" in text_of(answer)


def test_an_opt_out_that_cannot_be_stored_is_a_503(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that can be read, but not written: the provider or the person tries again, and that works."""
    path = sender.link(group_id=sender.group_id)
    sender.post(sender.link("bob@example.com"))
    with monkeypatch.context() as outage:
        outage.setattr(type(sender.app.database), "write", away)
        for answer in (sender.post(path), sender.post(path, {"choice": "all"})):
            assert (answer.status, answer.header("retry-after")) == (503, "1")
            assert "Please try again" in text_of(answer)
    assert len(sender.records()) == 1
    assert sender.post(path).status == 200
    assert len(sender.records()) == 2


def test_other_methods_are_refused(sender: Sender) -> None:
    answer = sender.get(sender.link(), method="PUT")
    assert (answer.status, answer.header("allow")) == (405, "GET, HEAD, POST")


# Undo.


def undo_of(sender: Sender, path: str, **form: str) -> str:
    (field,) = fields_of(sender.post(path, {"choice": "group", **form}), "undo")
    return field


def test_undo_returns_to_what_was_before(sender: Sender) -> None:
    """The feed shows a change of its own, by the same person; a second undo changes nothing more."""
    path = sender.link(group_id=sender.group_id)
    field = undo_of(sender, path)
    for _ in range(2):
        answer = sender.post(path, {"undo": field})
        assert (answer.status, fields_of(answer, "choice")) == (200, ["group", "all"])
        assert "Everything is as it was before" in text_of(answer)
    assert sender.records() == [(ANN, 1, "resubscribed", "correction", None)]
    assert [one["actor_kind"] for one in sender.submissions()] == ["link", "link"]


def test_what_was_sent_since_is_not_undone(sender: Sender) -> None:
    """The same link may have sent it, too: the person clicked again."""
    path = sender.link(group_id=sender.group_id)
    field = undo_of(sender, path)
    sender.app.clock.advance(2)
    assert sender.post(path).status == 200
    answer = sender.post(path, {"undo": field})
    assert (answer.status, "Not undone" in text_of(answer)) == (200, True)
    assert sender.records()[0][2] == "unsubscribed"


@pytest.mark.parametrize("is_for_group", [True, False])
def test_a_click_after_undo_is_not_undone_by_it(sender: Sender, is_for_group: bool) -> None:
    """The field still works, but the opt-out that stands is another."""
    path = sender.link(group_id=sender.group_id if is_for_group else None)
    field = undo_of(sender, path)
    assert "Everything is as it was before" in text_of(sender.post(path, {"undo": field}))
    sender.app.clock.advance(2)
    sender.post(path)
    answer = sender.post(path, {"undo": field})
    assert (answer.status, "Not undone" in text_of(answer)) == (200, True)
    assert sender.records()[0][2] == "unsubscribed"


def test_there_is_nothing_to_undo_where_nothing_changed(sender: Sender) -> None:
    path = sender.link(group_id=sender.group_id)
    undo_of(sender, path)
    sender.app.clock.advance(2)
    assert fields_of(sender.post(path, {"choice": "group"}), "undo") == []


async def too_late() -> None:
    raise TimeoutError("The body was not complete in time.")


def test_an_undo_that_cannot_be_is_no_opt_out(sender: Sender) -> None:
    """Expired, altered, or of another link: the page says so, and nothing is stored.

    Nor as multipart, nor among too many fields, nor in a body that is too large or late.
    """
    path, other = sender.link(group_id=sender.group_id), sender.link("bob@example.com")
    field = undo_of(sender, path)
    before = (sender.records(), sender.submissions())
    multipart = f'--x\r\nContent-Disposition: form-data; name="undo"\r\n\r\n{field}\r\n--x--\r\n'.encode()
    attempts = [
        sender.post(one, {"undo": text, "choice": "all"})
        for one, text in (
            (path, field[:-1] + ("0" if field[-1] != "0" else "1")),
            (path, "9" + field),
            (path, ""),
            (other, field),
        )
    ]
    attempts.append(sender.post(other, multipart, content_type="multipart/form-data; boundary=x"))
    attempts += [sender.post(path, body) for body in (b"a=1&" * 120 + b"undo=x", b"undo=x&y=" + b"z" * 70_000)]
    attempts.append(sender.post(path, b"undo=x&y=" + b"z" * 5_000, meanwhile=too_late))
    sender.app.clock.advance(15 * 60 + 1)
    attempts.append(sender.post(path, {"undo": field}))
    for answer in attempts:
        assert answer.status == 422
        assert "can no longer be undone" in text_of(answer)
    assert (sender.records(), sender.submissions()) == before


def test_undo_works_until_its_last_moment(sender: Sender) -> None:
    path = sender.link(group_id=sender.group_id)
    field = undo_of(sender, path)
    sender.app.clock.advance(15 * 60)
    assert "Everything is as it was before" in text_of(sender.post(path, {"undo": field}))


def test_a_forgotten_key_turns_people_away(sender: Sender) -> None:
    execution = execute(
        sender.app.database, "UPDATE link_keys SET secret = 'lost' WHERE link_key_id = :id", id=sender.key.key_id
    )
    sender.app.run(execution)
    assert (sender.get(sender.link()).status, sender.post(sender.link()).status) == (410, 410)


@pytest.mark.slow
def test_many_clicks_at_once_are_one_act(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 000 for one address: one is stored, the others find it; what the database refuses is a 503 to try again."""
    path, app = sender.link(), sender.app
    began_ms, calls = app.clock.now_ms(), itertools.count()
    monkeypatch.setattr(app.clock, "now_ms", lambda: began_ms + next(calls) % 900)  # all within a second

    async def all_at_once() -> list[int]:
        answers = await asyncio.gather(*(app.answer("POST", path, body=ONE_CLICK) for _ in range(10_000)))
        return [answer.status for answer in answers]

    statuses = Counter[int](app.run(all_at_once()))
    assert set(statuses) <= {200, 503}
    assert statuses[200] > 0
    assert len(sender.submissions()) == 1
    assert sender.records() == [(ANN, 0, "unsubscribed", "unsubscribe", "one_click")]
    assert sender.post(path).status == 200
