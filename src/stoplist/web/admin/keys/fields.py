"""Fields that several forms of API keys share."""

from stoplist.errors import Refused
from stoplist.oauth.model import MAX_PER_MINUTE
from stoplist.web.admin.page_request import PageRequest

PERMISSION_TEXTS = (
    ("read", "Read", "Look up and list opt-outs, and read every change."),
    ("unsubscribe", "Unsubscribe", "Submit opt-outs."),
    ("resubscribe", "Resubscribe", "Submit resubscriptions."),
)
REFRESH_OPTIONS = (
    (
        "needs_secret",
        "Refresh tokens need the secret",
        "A stolen refresh token is then useless by itself. The partner's program must send client_id and client_secret "
        "with every refresh.",
    ),
)


def read_rate_limit(request: PageRequest, field: str) -> int | None:
    """Return the number in that field, or None if it is empty. Raises Refused."""
    text = request.form.text(field)
    if not text:
        return None
    digits = text.replace(",", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and 1 <= int(digits) <= MAX_PER_MINUTE):
        raise Refused(f"Enter a whole number of requests from 1 to {MAX_PER_MINUTE:,}.", field=field)
    return int(digits)
