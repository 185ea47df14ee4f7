"""Names that a form brings back for what it makes, so that a form sent twice makes one thing.

The name is drawn when the form is shown and authenticated for the person who was shown it; the operation refuses a
second thing of that name.
"""

import hashlib
import hmac

from stoplist.errors import Refused
from stoplist.web.admin.page_request import PageRequest

_TAG_CHARS = 32
_STALE = "This form is from another time or person: look at it once more, and send it again."


def sealed(request: PageRequest, field: str, name: str) -> str:
    """`name` as that hidden field holds it."""
    return f"{name}.{_tag(request, request.admin.secret_keys[0], field, name)}"


def opened(request: PageRequest, field: str) -> str:
    """The name in that field of the form; Refused where this person was not shown it in such a field."""
    name, _, tag = request.form.text(field).partition(".")
    for key in request.admin.secret_keys:
        if hmac.compare_digest(_tag(request, key, field, name).encode(), tag.encode()):
            return name
    raise Refused(_STALE)


def _tag(request: PageRequest, key: str, field: str, name: str) -> str:
    said = f"form\0{request.actor.id}\0{field}\0{name}".encode()
    return hmac.new(key.encode(), said, hashlib.sha256).hexdigest()[:_TAG_CHARS]
