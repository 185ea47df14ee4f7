"""Uses an opt-out link as a mailbox provider does: one POST, without cookies and without following redirects.

Source: RFC 8058 section 3.2.
"""

import os
import re

import httpx2

from stoplist_client.errors import ConfigurationError, TransportFailed
from stoplist_client.transport import wire
from stoplist_client.transport.deadline import limit_new_stream, limited_to

_TIMEOUT_S, _TOTAL_S = 30.0, 60.0
_LINK = re.compile(r"(https://[^/?#\s]+)(/[\x21-\x7e]*)")
_BODY = b"List-Unsubscribe=One-Click"


def one_click(url: str, *, ca_file: str | os.PathLike[str] | None = None) -> tuple[int, str]:
    """Opt the person of this link out, as a mailbox provider does; return the status and the text of the answer.

    Raises TransportFailed if there is no answer, ConfigurationError for a text that is no https:// address.
    """
    origin, target = _split(url)
    failure: Exception
    try:
        with httpx2.Client(**wire.options(origin, ca_file=ca_file, timeout_s=_TIMEOUT_S)) as http, limited_to(_TOTAL_S):
            answer = http.post(
                "/u/",
                content=_BODY,
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                # Sent in place of the path; httpx2 neither logs nor shows it.
                extensions={"target": target.encode("ascii"), "trace": limit_new_stream},
            )
            return answer.status_code, answer.text
    except httpx2.HTTPError as error:
        failure = wire.to_failure(error)
    # Raised outside the handler, because an exception of httpx2 holds the request.
    raise (
        failure if isinstance(failure, TransportFailed) else TransportFailed(f"The service did not answer: {failure}.")
    )


def _split(url: str) -> tuple[str, str]:
    """Return the base address and the path of a link."""
    match = _LINK.fullmatch(url)
    origin = match and wire.normalized_base_url(match[1])
    if match is None or origin is None:
        raise ConfigurationError("The link must begin with https:// and a host.")
    return origin, match[2]
