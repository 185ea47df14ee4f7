"""Signed hidden fields. They carry the id of what a form will create, so that sending it twice creates one thing.

The id is generated when the form is shown, and signed for the person it is shown to. The operation refuses to create a
second thing with the same id.
"""

import hashlib
import hmac

from stoplist.errors import Refused
from stoplist.web.admin.page_request import PageRequest

_TAG_CHARS = 32
_STALE = "This form has expired or was opened by somebody else. Check it and send it again."


def sign_field(request: PageRequest, field: str, value: str) -> str:
    """Return the content of the hidden field for this value and person."""
    return f"{value}.{_tag(request, request.admin.secret_keys[0], field, value)}"


def read_signed_field(request: PageRequest, field: str) -> str:
    """Return the value in that hidden field. Raises Refused unless it was signed for this person and field."""
    value, _, tag = request.form.text(field).partition(".")
    for key in request.admin.secret_keys:
        if hmac.compare_digest(_tag(request, key, field, value).encode(), tag.encode()):
            return value
    raise Refused(_STALE)


def _tag(request: PageRequest, key: str, field: str, value: str) -> str:
    signed = f"form\0{request.actor.id}\0{field}\0{value}".encode()
    return hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()[:_TAG_CHARS]
