"""Fields of a key that several forms have."""

from stoplist.errors import Refused
from stoplist.oauth.model import MOST_PER_MINUTE
from stoplist.web.admin.page_request import PageRequest

PERMISSION_TEXTS = (
    ("read", "Read", "look up and list opt-outs, and follow every change"),
    ("unsubscribe", "Unsubscribe", "submit opt-outs"),
    ("resubscribe", "Resubscribe", "submit that people want messages again"),
)


def read_ceiling(request: PageRequest, field: str) -> int | None:
    """The number in that field; None where it is empty. Raises Refused."""
    text = request.form.text(field)
    if not text:
        return None
    digits = text.replace(",", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and 1 <= int(digits) <= MOST_PER_MINUTE):
        raise Refused(f"A ceiling is a whole number of requests from 1 to {MOST_PER_MINUTE:,}.", field=field)
    return int(digits)
