"""Refuses posts that come from other sites (CSRF); the only place that does.

A browser sends the session cookie with every request, whichever site caused it. `Sec-Fetch-Site` (Fetch Metadata) tells
the site; older browsers send `Origin`; a client that sends neither is not a browser with a session.
"""

from stoplist.errors import Forbidden
from stoplist.web.request_context import Headers, header_value


def refuse_other_sites(headers: Headers, *, base_url: str) -> None:
    """Raise Forbidden unless a page of this origin made the post; a page of a sibling subdomain is refused too."""
    source, expected = header_value(headers, b"sec-fetch-site"), b"same-origin"
    if not source:
        source, expected = header_value(headers, b"origin"), base_url.encode()
    if source != expected:
        raise Forbidden(
            f"This form was not sent from {base_url}, so nothing was changed. Open {base_url} and try again there."
        )
