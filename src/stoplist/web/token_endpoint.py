"""`POST /oauth/token`: reads the form, runs the grant, and renders its outcome.

Refusals come in this order: HTTPS, method, shape of the request, grant type, client authentication, limit, grant.
Refusals before client authentication are `invalid_request` or `unsupported_grant_type` and count against no limit.
Source: docs/interface.md sections 4.1, 7.1 and D2.
"""

from stoplist.actor import Actor
from stoplist.errors import BadRequest, MethodNotAllowed, UnsupportedGrantType
from stoplist.limits.headers import rate_limit_headers
from stoplist.oauth.authentication import PresentedCredentials, read_presented
from stoplist.oauth.grants import GRANTS, refresh_token
from stoplist.oauth.outcome import Outcome, TokenRequest, TokenStores
from stoplist.source import source_key
from stoplist.web.body import read_body
from stoplist.web.concurrency_limit import PerSourceConcurrency
from stoplist.web.forms import FormFault, MalformedForm, is_form, parse_pairs
from stoplist.web.metrics import Metrics
from stoplist.web.request_context import (
    TOKEN_PATH,
    Headers,
    Receive,
    Scope,
    Send,
    request_context_of,
    send_token_json,
)
from stoplist.web.token_forms import PARAMETERS

MAX_BODY_BYTES = 8 * 1024
_GRANT_NAMES = " or ".join(GRANTS)


class TokenEndpoint:
    """The ASGI application of the token endpoint."""

    def __init__(self, stores: TokenStores, metrics: Metrics, concurrency: PerSourceConcurrency) -> None:
        self._stores, self._metrics, self._concurrency = stores, metrics, concurrency

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = request_context_of(scope)
        context.route = TOKEN_PATH
        form, presented = await _read(scope, receive)
        grant_type = form["grant_type"]
        actor = Actor(kind="client", id="", source_ip=context.source_ip, request_id=context.request_id)
        request = TokenRequest(
            presented=presented,
            refresh_token=form.get("refresh_token", ""),
            source=source_key(context.source_ip),
        )
        with self._concurrency.acquire(context.source_ip):
            outcome = await GRANTS[grant_type](actor, self._stores, request)
        context.client_id, context.is_authenticated = outcome.client_id, outcome.is_authenticated
        self._count(grant_type, outcome)
        headers = rate_limit_headers("token", outcome.decision) if outcome.is_authenticated else []
        if outcome.error is None:
            await send_token_json(send, 200, outcome.pair, headers)
            return
        context.headers = headers
        raise outcome.error

    def _count(self, grant_type: str, outcome: Outcome) -> None:
        if outcome.raised_alarm:
            self._metrics.reuse_alarms.inc()
        if outcome.pair is not None:
            is_refresh = grant_type == refresh_token.NAME
            (self._metrics.refreshes if is_refresh else self._metrics.tokens_issued).inc()


async def _read(scope: Scope, receive: Receive) -> tuple[dict[str, str], PresentedCredentials]:
    """Return the known parameters and the presented credentials of a well-formed request; BadRequest for any other."""
    if scope["method"] != "POST":
        raise MethodNotAllowed("The token endpoint takes POST alone.", allow="POST")
    if scope["query_string"]:
        raise BadRequest("Send the parameters in the body: the token endpoint takes none in the query string.")
    authorization = _check_headers(scope["headers"])
    form = parse_form(await read_body(receive, scope["headers"], max_bytes=MAX_BODY_BYTES))
    if "grant_type" not in form:
        raise BadRequest(f"The parameter grant_type is missing or empty: send {_GRANT_NAMES}.")
    if form["grant_type"] not in GRANTS:
        raise UnsupportedGrantType(f"This grant_type is not offered: send {_GRANT_NAMES}.")
    if form["grant_type"] == refresh_token.NAME and "refresh_token" not in form:
        raise BadRequest("The parameter refresh_token is missing or empty: send the latest refresh token.")
    presented = read_presented(authorization, client_id=form.get("client_id"), client_secret=form.get("client_secret"))
    return form, presented


_MAX_FIELDS = 100
_FORM_FAULTS = {
    FormFault.NOT_UTF8: "The body is not UTF-8: send its parameters percent-encoded.",
    FormFault.TOO_MANY_FIELDS: f"The body has more than {_MAX_FIELDS} parameters: send those of the grant alone.",
    FormFault.NUL_CHARACTER: "The body contains a NUL character: send text alone.",
}


def parse_form(body: bytes) -> dict[str, str]:
    """Return the known parameters with a value from a form body of any bytes; BadRequest if it is malformed.

    A parameter without a value counts as omitted (RFC 6749 section 3.2), but still as repeated if sent again.
    """
    try:
        pairs = parse_pairs(body, max_fields=_MAX_FIELDS)
    except MalformedForm as error:
        raise BadRequest(_FORM_FAULTS[error.fault]) from None
    form: dict[str, str] = {}
    for name, value in pairs:
        if name in form:
            raise BadRequest(f"The parameter {name} is sent more than once: send it once.")
        if name in PARAMETERS:
            form[name] = value
    return {name: value for name, value in form.items() if value}


def _check_headers(headers: Headers) -> bytes | None:
    """Return the `Authorization` header, or None; BadRequest unless the headers announce a plain form."""
    authorization = content_type = None
    for name, value in headers:
        if name == b"authorization":
            if authorization is not None:
                raise BadRequest("There are two Authorization headers: send one.")
            authorization = value
        elif name == b"content-type":
            content_type = value if content_type is None else b""
        elif name == b"content-encoding":
            raise BadRequest("The body has a Content-Encoding: send it as it is.")
    if content_type is None or not is_form(content_type):
        raise BadRequest("The content type must be application/x-www-form-urlencoded.")
    return authorization
