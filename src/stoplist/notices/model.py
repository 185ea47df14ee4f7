"""Notices: their kinds and their body, which never holds an address, a secret, a file name or a label.

Source: docs/interface.md section D16.
"""

from collections.abc import Mapping
from typing import Final

from stoplist import rfc3339
from stoplist.clock import DAY_MS
from stoplist.db.query import json_text

KEY_REUSE_ALARM: Final = "key.reuse_alarm"
KEY_BEHIND: Final = "key.behind"
IMPORT_ENDED: Final = "import.ended"
REVERSAL_ENDED: Final = "reversal.ended"
PERSON_ERASED: Final = "person.erased"
STORE_UNAVAILABLE: Final = "store.unavailable"
TEST: Final = "notice.test"

SIGN_IN_LINK: Final = "person.link"
"""Kept like a notice, but for the e-mail to its person alone."""

KINDS = (KEY_REUSE_ALARM, KEY_BEHIND, IMPORT_ENDED, REVERSAL_ENDED, PERSON_ERASED, STORE_UNAVAILABLE, TEST)

WEBHOOK: Final = "webhook"
MAIL: Final = "mail"

TRIED_FOR_MS = 3 * DAY_MS
"""A notice that was not delivered within this time is given up."""


def body_text(kind: str, at_ms: int, facts: Mapping[str, object]) -> str:
    """Return the body of a notice: what a webhook receives, in the form that Standard Webhooks recommends."""
    return json_text({"type": kind, "timestamp": rfc3339.format_ms(at_ms), "data": facts})


NOBODY: Final = 0
"""The id of no person: the address of an invitation is sealed with its link."""


def mail_to(person_id: int) -> str:
    """Return how a delivery to this person is stored."""
    return f"{MAIL}:{person_id}"


def person_of(via: str) -> int:
    """Return the person whom a delivery by e-mail is for."""
    return int(via.removeprefix(f"{MAIL}:"))
