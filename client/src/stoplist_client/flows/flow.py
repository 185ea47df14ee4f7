"""What an operation asks of the world, as plain values, so that each is written once for both clients.

An operation is a generator, a *flow*: it yields what it wants done, is sent what came of it, and returns its result. It
does no I/O over the network and never waits by itself. `Client` performs what is asked with httpx2.Client and
time.sleep, `AsyncClient` with their asynchronous like. Reasons: docs/decisions/0015-client.md.
"""

from collections.abc import AsyncIterable, Generator, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from stoplist_client.redacted import Redacted

T = TypeVar("T")


class Send(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """One request, sent once. It is answered by an Answer, or NoAnswer is thrown in.

    `url` begins with a slash and carries its query, encoded. Headers and content hold tokens and secrets: no repr.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None = None

    def __repr__(self) -> str:
        return f"Send({self.method} {self.url.partition('?')[0]})"


class Answer(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """What the server said; names of headers are in lower case, the body is unpacked."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Answer({self.status}, {len(self.body)} bytes)"


class NoAnswer(Exception):
    """The request got none, or half of one; whether it took effect is unknown.

    The text names the kind of failure, without the request. It carries no other exception: those hold requests.
    """


class Pause(msgspec.Struct, frozen=True):
    """Let this many seconds pass."""

    seconds: float


class Take(Redacted, msgspec.Struct, frozen=True):
    """Up to `most` further elements of `source`, as a list; an empty one at its end.

    `source` is an iterator, or (for AsyncClient) an asynchronous one; or what gives the same one each time.
    """

    source: Any
    most: int


Effect: TypeAlias = Send | Pause | Take
Flow: TypeAlias = Generator[Effect, Any, T]
Source: TypeAlias = Iterable[T] | AsyncIterable[T]


def send(request: Send) -> Flow[Answer]:
    """The answer; NoAnswer where none came."""
    answer: Answer = yield request
    return answer


def pause(seconds: float) -> Flow[None]:
    """Returns after so many seconds."""
    yield Pause(seconds)


def take(source: Any, most: int) -> Flow[list[Any]]:
    """Up to `most` elements."""
    elements: list[Any] = yield Take(source, most)
    return elements
