"""What all operations of a client share, and one call of the API with all that belongs to it: token, patience, refusal.

Sources: docs/interface.md sections 5 and 8.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stoplist_client.environment import Environment
from stoplist_client.errors import ApiError, InvalidToken, NotUnderstood
from stoplist_client.flows.answers import refusal
from stoplist_client.flows.flow import Answer, Flow, Send, send
from stoplist_client.flows.retries import patiently
from stoplist_client.flows.target import Target

if TYPE_CHECKING:
    from stoplist_client.flows.renewal import Renewal

# Each turn but the last means that another process took new tokens meanwhile, and that these are refused too.
_MOST_TURNS = 4

Refused = Callable[[Answer], ApiError | NotUnderstood]


class Session:
    """A key and what it is used for: the state that the flows of one client share, whichever kind it is."""

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


def call(session: Session, request: Send, *, refused: Refused = refusal) -> Flow[Answer]:
    """The answer 200; any other raises what `refused` makes of it, once neither waiting nor new tokens can help.

    `request` has no Authorization yet. It may be sent several times (section 8); on 401 the tokens are renewed, and it
    is sent again. InvalidToken is raised where tokens that were just given out are refused.
    """
    held = yield from session.tokens.current()
    for turn in range(1, _MOST_TURNS + 1):
        signed = _signed(request, held.access_token)
        answer = yield from patiently(partial(send, signed), environment=session.environment, attempts=session.attempts)
        if answer.status == 200:
            return answer
        error = refused(answer)
        if not isinstance(error, InvalidToken) or held.is_fresh or turn == _MOST_TURNS:
            break
        held = yield from session.tokens.instead_of(held.access_token)
    raise error


def _signed(request: Send, access_token: str) -> Send:
    return Send(
        method=request.method,
        url=request.url,
        headers={**request.headers, "Authorization": f"Bearer {access_token}"},
        content=request.content,
    )
