"""The texts of e-mails: notices, and sign-in links. Source: docs/interface.md sections D11 and D16."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from stoplist.notices.model import (
    IMPORT_ENDED,
    KEY_BEHIND,
    KEY_REUSE_ALARM,
    PERSON_ERASED,
    REVERSAL_ENDED,
    STORE_UNAVAILABLE,
    TEST,
)
from stoplist.rfc3339 import format_ms


class MailText(NamedTuple):
    """Subject and body of an e-mail in plain text."""

    subject: str
    body: str


_TEXTS = {
    KEY_REUSE_ALARM: (
        "A refresh token was used twice",
        "A refresh token was used twice, so somebody may have stolen it. Every token of the key was revoked. Ask the "
        "partner whether a program of theirs lost an answer or ran twice; if not, replace the key.",
    ),
    KEY_BEHIND: (
        "A key fell behind, or caught up",
        "The state of a key changed: it may not have fetched opt-outs in time, or does so again.",
    ),
    IMPORT_ENDED: ("An import ended", "An import ended. Its page shows the rows that were left out."),
    REVERSAL_ENDED: ("A reversal ended", "Opt-outs were taken back."),
    PERSON_ERASED: ("A person was erased", "A person was erased at their request."),
    STORE_UNAVAILABLE: ("The database does not answer", "The database has failed for a minute."),
    TEST: ("This is a test", "E-mails of Stoplist arrive here."),
}


def notice_text(kind: str, body: str, *, base_url: str) -> MailText:
    """Return the e-mail of a notice with this body."""
    subject, sentence = _TEXTS.get(kind, ("A notice", f"This is a notice of the kind {kind}."))
    notice = msgspec.json.decode(body)
    facts = [f"{name}: {_shown(fact)}" for name, fact in notice["data"].items() if not _names_others(name, fact)]
    lines = [sentence, "", f"time: {notice['timestamp']}", *facts, "", base_url]
    return MailText(f"Stoplist: {subject}", "\n".join(lines) + "\n")


def sign_in_link_text(url: str, *, expires_ms: int, base_url: str) -> MailText:
    """Return the e-mail that brings a sign-in link to its person."""
    return MailText(
        "Your sign-in link for Stoplist",
        f"Open this link to choose a password and sign in to {base_url}:\n\n{url}\n\n"
        f"It works once, until {format_ms(expires_ms)}, and replaces earlier links. Whoever opens it can sign in as "
        "you, so do not forward it. If you do not expect this e-mail, ignore it.\n",
    )


def invitation_text(url: str, organization: str, *, expires_ms: int, base_url: str) -> MailText:
    """Return the e-mail that brings an invitation to an organization, with the link for a person without an account."""
    return MailText(
        "An invitation to Stoplist",
        f"You are invited to the organization {organization} at {base_url}.\n\nIf you have an account there, sign in "
        f"and accept on the page Your account. If you have none, open this link to choose a password:\n\n{url}\n\n"
        f"It works until {format_ms(expires_ms)}. Do not forward it. If you do not expect this e-mail, ignore it.\n",
    )


def _names_others(name: str, fact: object) -> bool:
    """Return whether a fact names several organizations: their admins know their own alone."""
    return name == "organizations" and isinstance(fact, list) and len(fact) > 1


def _shown(fact: object) -> str:
    if isinstance(fact, list):
        return ", ".join(map(_shown, fact))
    if isinstance(fact, Mapping):
        return ", ".join(f"{name} {_shown(value)}" for name, value in fact.items())
    return str(fact)
