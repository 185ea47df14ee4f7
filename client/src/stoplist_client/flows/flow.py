"""The effects that operations need, as plain values, so that each operation is written once for both clients.

An operation is a generator, a *flow*: it yields an effect, is sent the outcome, and returns its result. It does no
network I/O and never waits by itself. `Client` performs effects with httpx2.Client and time.sleep, `AsyncClient` with
their asynchronous counterparts. Reasons: docs/decisions/0015-client.md.
"""

from collections.abc import AsyncIterable, Generator, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from stoplist_client.redacted import Redacted

T = TypeVar("T")


class Send(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """One request, sent once. The outcome is an Answer, or NoAnswer is thrown into the flow.

    `url` begins with a slash and includes the encoded query. `read_timeout_s` replaces the timeout of the client for an
    answer that the service may hold. The repr omits headers and content, which contain tokens and secrets.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None = None
    read_timeout_s: float | None = None

    def __repr__(self) -> str:
        return f"Send({self.method} {self.url.partition('?')[0]})"


class Answer(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the server. Header names are in lower case, the body is decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Answer({self.status}, {len(self.body)} bytes)"


class NoAnswer(Exception):
    """The request got no answer or an incomplete one; it may have taken effect or not.

    The message names the kind of failure. It is chained to no other exception, since those hold the request.
    """


class Pause(msgspec.Struct, frozen=True):
    """Wait this many seconds."""

    seconds: float


class Take(Redacted, msgspec.Struct, frozen=True):
    """Up to `most` further elements of `source` as a list, which is empty at its end.

    `source` is an iterator, for AsyncClient also an asynchronous one, or an object that always returns the same one.
    """

    source: Any
    most: int


Effect: TypeAlias = Send | Pause | Take
Flow: TypeAlias = Generator[Effect, Any, T]
Source: TypeAlias = Iterable[T] | AsyncIterable[T]


def send(request: Send) -> Flow[Answer]:
    """Send a request once, and return the answer. Raises NoAnswer."""
    answer: Answer = yield request
    return answer


def pause(seconds: float) -> Flow[None]:
    """Wait this many seconds."""
    yield Pause(seconds)


def take(source: Any, most: int) -> Flow[list[Any]]:
    """Return up to `most` further elements of `source`."""
    elements: list[Any] = yield Take(source, most)
    return elements
