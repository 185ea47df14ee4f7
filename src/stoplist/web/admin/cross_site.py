"""Whether a post was made by a page of ours: the one place where posts of other sites are refused.

A session rides along with every request that a browser makes, whoever's page made it do so. `Sec-Fetch-Site` says whose
it was (Fetch Metadata); browsers without it send `Origin`; what sends neither is no browser that a session belongs to.
"""

from stoplist.errors import Forbidden
from stoplist.web.request_context import Headers, header_value


def refuse_other_sites(headers: Headers, *, base_url: str) -> None:
    """Raises Forbidden unless a page of ours made this post; a page of a sister site is none."""
    said, ours = header_value(headers, b"sec-fetch-site"), b"same-origin"
    if not said:
        said, ours = header_value(headers, b"origin"), base_url.encode()
    if said != ours:
        raise Forbidden(
            f"This form was not sent by a page of {base_url}, so nothing was done: open that address, and try there."
        )
