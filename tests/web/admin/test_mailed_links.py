"""With a mail server, links are sent to their people and shown to nobody (docs/interface.md sections D11 and D16)."""

import re
from typing import Any
from urllib.parse import quote

import pytest

from stoplist.notices.delivery import NoticeDelivery, Senders
from stoplist.notices.mail_texts import MailText
from stoplist.notices.outcome import DELIVERED, DeliveryOutcome
from tests.builders import contents
from tests.web.admin.creation import new_address, new_person, organization, person
from tests.web.admin.pages import PASSWORD, Pages
from tests.web.application import Application


class Mailbox:
    """A mail server that keeps the e-mails."""

    def __init__(self, pages: Pages) -> None:
        self.app, self.mails = pages.app, list[tuple[str, MailText]]()

    async def send(self, recipient: str, text: MailText, **_: Any) -> DeliveryOutcome:
        self.mails.append((recipient, text))
        return DELIVERED

    def deliver(self) -> None:
        """Deliver what waits."""
        senders = Senders(None, self, self.app.parts.base_url, self.app.parts.secret_keys)
        self.app.run(NoticeDelivery(self.app.database, self.app.clock, senders).finish())

    def link(self) -> tuple[str, str]:
        """Deliver what waits; return to whom the only e-mail went, and the path and query of its link."""
        self.deliver()
        ((recipient, text),) = self.mails
        found = re.search(r"^https://[^/]+(/\S+\?token=\S+)$", text.body, re.MULTILINE)
        assert found
        return recipient, found[1]


@pytest.fixture
def mailing(pages: Pages) -> Pages:
    """Return the same people with a server that sends e-mail."""
    app = pages.app
    return pages.with_app(Application(app.run, app.database, app.clock, sends_mail=True))


def test_the_link_of_a_new_person_is_sent(mailing: Pages) -> None:
    """The page says to whom; the link opens the account."""
    browser, address, mailbox = mailing.signed_in("administrator"), new_address(), Mailbox(mailing)
    made = browser.submit_form("/settings/people/new", email=address, role="admin", org_slug="acme")
    assert (made.status, "token=" in made.html, "is sent to" in made.html) == (200, False, True)
    recipient, path = mailbox.link()
    assert recipient == address
    stranger = mailing.stranger()
    opened = stranger.get(path)
    action = path.partition("?")[0]
    assert stranger.send(opened.form(action), password=PASSWORD, repeated=PASSWORD).status == 303
    assert person(mailing, address).has_password


@pytest.mark.parametrize("path", ["/settings/people/new", "/organizations/acme/people/new"])
def test_the_form_for_a_person_says_what_becomes_of_the_link(pages: Pages, mailing: Pages, path: str) -> None:
    """It is sent, or shown on the next page if this deployment sends no e-mail."""
    shown, sent = pages.signed_in("administrator").get(path).html, mailing.signed_in("administrator").get(path).html
    assert ("does not send e-mail" in shown, "next page shows" in shown, "by e-mail" in shown) == (True, True, False)
    assert ("does not send e-mail" in sent, "next page shows" in sent, "by e-mail" in sent) == (False, False, True)


def test_the_form_of_an_invitation_says_what_becomes_of_the_link(pages: Pages, mailing: Pages) -> None:
    slug = organization(mailing)
    admin = new_person(mailing, roles={slug: "admin"})
    html = admin.browser.get(f"/organizations/{slug}/people/new").html
    assert ("does not send e-mail" in html, "next page shows" in html, "by e-mail" in html) == (False, False, True)


def test_a_new_link_is_sent(mailing: Pages) -> None:
    other, mailbox = new_person(mailing, roles={"acme": "viewer"}), Mailbox(mailing)
    browser, path = mailing.signed_in("administrator"), f"/settings/people/{quote(other.email)}/link"
    made = browser.submit_form(path)
    assert "token=" not in made.html
    assert mailbox.link()[0] == other.email


def test_a_link_that_was_replaced_is_not_sent(mailing: Pages) -> None:
    """It does not work any more."""
    other, mailbox = new_person(mailing, roles={"acme": "viewer"}), Mailbox(mailing)
    browser, path = mailing.signed_in("administrator"), f"/settings/people/{quote(other.email)}/link"
    for _ in range(2):
        browser.submit_form(path)
    _, link = mailbox.link()
    assert mailing.stranger().get(link).status == 200


def test_an_invitation_is_sent(mailing: Pages) -> None:
    """The address has no account; the admin who invites cannot use the link."""
    slug, mailbox, address = organization(mailing), Mailbox(mailing), new_address()
    admin = new_person(mailing, roles={slug: "admin"})
    browser, path = admin.browser, f"/organizations/{slug}/people/new"
    made = browser.submit_form(path, email=address, role="viewer")
    assert (made.status, "token=" in made.html, "is sent to" in made.html) == (200, False, True)
    recipient, link = mailbox.link()
    assert recipient == address
    assert mailing.stranger().get(link).status == 200


@pytest.mark.parametrize("is_replaced", [False, True])
def test_an_invitation_that_does_not_stand_is_not_sent(mailing: Pages, is_replaced: bool) -> None:
    """Its link would lead nowhere: it was withdrawn, or replaced by the one that is sent."""
    slug, mailbox, address = organization(mailing), Mailbox(mailing), new_address()
    browser = new_person(mailing, roles={slug: "admin"}).browser
    path = f"/organizations/{slug}/people/new"
    for _ in range(1 + is_replaced):
        browser.submit_form(path, email=address, role="viewer")
    if is_replaced:
        _, link = mailbox.link()
        assert mailing.stranger().get(link).status == 200
        return
    browser.send(browser.get(f"/organizations/{slug}").form(f"/organizations/{slug}/withdraw-invitation"))
    mailbox.deliver()
    assert mailbox.mails == []


def test_what_is_stored_shows_no_link(mailing: Pages) -> None:
    """A person who reads the database can use none of them."""
    browser, address = mailing.signed_in("administrator"), new_address()
    browser.submit_form("/settings/people/new", email=address, role="none")
    stored = repr(mailing.app.run(contents(mailing.app.database, "notices", "notice_deliveries")))
    assert "token=" not in stored
    _, path = Mailbox(mailing).link()
    assert path.partition("token=")[2] not in stored
