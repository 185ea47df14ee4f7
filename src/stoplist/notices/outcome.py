"""The outcome of an attempt to deliver a notice."""

import ssl
from collections.abc import Iterator
from typing import Final, NamedTuple

SENT: Final = "delivered"
FAILED: Final = "failure"
GIVEN_UP: Final = "given_up"


class DeliveryOutcome(NamedTuple):
    """`error` says why the notice was not delivered, without any text of the other side; None: it was delivered.

    `retry_after_s` is what the receiver asked for.
    """

    error: str | None
    retry_after_s: int | None = None

    @property
    def is_delivered(self) -> bool:
        return self.error is None


DELIVERED = DeliveryOutcome(None)


def failed(error: BaseException) -> DeliveryOutcome:
    """Return the outcome of an attempt that raised this: the class of the error says enough, and repeats nothing."""
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in _causes(error)):
        return DeliveryOutcome("certificate not valid")
    if isinstance(error, TimeoutError):
        return DeliveryOutcome("no answer in time")
    return DeliveryOutcome(type(error).__name__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and what a library had caught before it raised this one."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
