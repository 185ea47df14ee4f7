"""Names that a form brings back for what it makes, so that a form sent twice makes one thing.

The name is drawn when the form is shown and authenticated for the person who was shown it; the operation refuses a
second thing of that name.
"""

import hashlib
import hmac

from stoplist.errors import Refused
from stoplist.web.admin.page_request import Visit

_TAG_CHARS = 32
_STALE = "This form is from another time or person: look at it once more, and send it again."


def sealed(visit: Visit, field: str, name: str) -> str:
    """`name` as that hidden field holds it."""
    return f"{name}.{_tag(visit, visit.desk.secret_keys[0], field, name)}"


def opened(visit: Visit, field: str) -> str:
    """The name in that field of the form; Refused where this person was not shown it in such a field."""
    name, _, tag = visit.form.text(field).partition(".")
    for key in visit.desk.secret_keys:
        if hmac.compare_digest(_tag(visit, key, field, name).encode(), tag.encode()):
            return name
    raise Refused(_STALE)


def _tag(visit: Visit, key: str, field: str, name: str) -> str:
    said = f"form\0{visit.actor.id}\0{field}\0{name}".encode()
    return hmac.new(key.encode(), said, hashlib.sha256).hexdigest()[:_TAG_CHARS]
