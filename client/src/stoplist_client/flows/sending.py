"""The state that all operations of a client share, and one API call with its token, retries and errors.

Sources: docs/interface.md sections 5 and 8.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stoplist_client.environment import Environment
from stoplist_client.errors import ApiError, InvalidToken, NotUnderstood
from stoplist_client.flows.answers import refusal
from stoplist_client.flows.flow import Answer, Flow, Send, send
from stoplist_client.flows.retries import with_retries
from stoplist_client.flows.target import Target

if TYPE_CHECKING:
    from stoplist_client.flows.renewal import Renewal

# Each further turn means that another process got new tokens meanwhile, and that the service refused these too.
_MAX_TURNS = 4

MakeError = Callable[[Answer], ApiError | NotUnderstood]


class Session:
    """The state that the flows of one client share: its tokens, target and limits."""

    def __init__(
        self,
        *,
        tokens: "Renewal",
        target: Target,
        environment: Environment,
        attempts: int = 3,
        batch_items: int = 10_000,
    ) -> None:
        self.tokens, self.target, self.environment = tokens, target, environment
        self.attempts, self.batch_items = attempts, batch_items


def call(session: Session, request: Send, *, make_error: MakeError = refusal) -> Flow[Answer]:
    """Send a request with an access token, and return the answer 200. Raises the error that `make_error` returns.

    `request` must not have an Authorization header. It may be sent several times (section 8): on 401 the tokens are
    renewed and it is sent again. Raises InvalidToken if tokens that were just issued are refused.
    """
    held = yield from session.tokens.current_token()
    for turn in range(1, _MAX_TURNS + 1):
        authorized = _authorized(request, held.access_token)
        answer = yield from with_retries(
            partial(send, authorized), environment=session.environment, attempts=session.attempts
        )
        if answer.status == 200:
            return answer
        error = make_error(answer)
        if not isinstance(error, InvalidToken) or held.is_fresh or turn == _MAX_TURNS:
            break
        held = yield from session.tokens.replace_refused(held.access_token)
    raise error


def _authorized(request: Send, access_token: str) -> Send:
    return Send(
        method=request.method,
        url=request.url,
        headers={**request.headers, "Authorization": f"Bearer {access_token}"},
        content=request.content,
        read_timeout_s=request.read_timeout_s,
    )
