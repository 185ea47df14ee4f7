"""Base class of Client and AsyncClient: their options, and the flow that each method runs."""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from typing import Any

from stoplist_client.environment import Environment
from stoplist_client.errors import ConfigurationError
from stoplist_client.flows.acts import Encoder
from stoplist_client.flows.batches import MAX_ITEMS
from stoplist_client.flows.flow import Flow
from stoplist_client.flows.following import FeedReader
from stoplist_client.flows.looking_up import LookUp
from stoplist_client.flows.renewal import Renewal
from stoplist_client.flows.sending import Session
from stoplist_client.flows.submitting import Progress, Submission
from stoplist_client.flows.target import Target, channel_path
from stoplist_client.model import Channel, Item, Moment, Status, Submitted
from stoplist_client.secret import Secret
from stoplist_client.tokens.stores import FileStore
from stoplist_client.tokens.tokens import KeyedStore, TokenStore
from stoplist_client.transport import wire

_ACCESS_TOKEN_LIFETIME_S = 900.0
_MAX_TIMEOUT_S = 86_400.0


class Core(ABC):
    """A service, a key, and the defaults of its calls.

    base_url:       the address of the service: `https://` and a host
    client_id, client_secret:  the key
    org_slug, group_id:  the organization and group of calls that name none; by default those of the key
    store:          keeps the tokens; by default FileStore(), which all processes of this user share
    ca_file:        the CA certificate of the service, if it has a private CA
    timeout_s:      the maximum wait for each part of an answer
    total_s:        the maximum duration of one request, up to the last byte of its answer
    attempts:       how often a request is sent in all if it fails temporarily (docs/interface.md section 8)
    renew_ahead_s:  renew tokens that expire within this time; by default, tokens are renewed when they are refused
    batch_items:    the maximum number of items per request
    """

    _base_url = _client_id = ""  # until they have been checked

    def __init__(
        self,
        base_url: str,
        *,
        client_id: str,
        client_secret: str | Secret,
        org_slug: str | None = None,
        group_id: str | None = None,
        store: TokenStore | KeyedStore | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
        total_s: float = 300.0,
        attempts: int = 3,
        renew_ahead_s: float | None = None,
        batch_items: int = MAX_ITEMS,
    ) -> None:
        # Wrapped first, so that no traceback shows the secret or a password in the address.
        client_secret, base_url = Secret(client_secret), wire.normalized_base_url(base_url) or ""
        if problem := _problem_of_key(client_id, client_secret):
            client_id = ""  # may be the secret
            raise ConfigurationError(problem)
        self._base_url, self._client_id = wire.checked_base_url(base_url), client_id
        _require_whole_number(attempts, "attempts", maximum=100)
        _require_whole_number(batch_items, "batch_items", maximum=MAX_ITEMS)
        _require_seconds(timeout_s=timeout_s, total_s=total_s, renew_ahead_s=renew_ahead_s)
        environment = Environment()
        self._session = Session(
            tokens=Renewal(
                base_url=self._base_url,
                client_id=client_id,
                client_secret=client_secret,
                store=FileStore() if store is None else store,
                environment=environment,
                attempts=attempts,
                total_s=total_s,
                renew_ahead_s=renew_ahead_s,
            ),
            target=Target(org_slug, group_id),
            environment=environment,
            attempts=attempts,
            batch_items=batch_items,
        )
        self._connect(wire.options(self._base_url, ca_file=ca_file, timeout_s=timeout_s), total_s=total_s)

    @property
    def base_url(self) -> str:
        """The normalized address of the service."""
        return self._base_url

    @property
    def org_slug(self) -> str | None:
        """The organization of calls that name none; None stands for the key's default organization."""
        return self._session.target.org_slug

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base_url!r}, client_id={self._client_id!r})"

    @abstractmethod
    def _connect(self, options: dict[str, Any], *, total_s: float) -> None:
        """Create the driver."""

    def _submission_flow(
        self,
        status: Status,
        channel: Channel,
        items: "Elements",
        *,
        org_slug: str | None,
        group_id: str | None,
        all_groups: bool,
        occurred_at: Moment | None,
        source: str | None,
        lenient: bool,
        on_progress: Progress | None,
        reason: str | None = None,
    ) -> Flow[Submitted]:
        items.check("items")
        environment = self._session.environment
        return Submission(
            self._session,
            channel_path(channel),
            items,
            target=self._session.target.for_call(org_slug, group_id, all_groups=all_groups),
            encoder=Encoder(environment, status=status, occurred_at=occurred_at, reason=reason, source=source),
            untimed=Encoder(environment, status=status, reason=reason, source=source, stamps=False),
            lenient=lenient,
        ).flow(on_progress)

    def _new_look_up(self, channel: Channel, addresses: "Elements", target: Target) -> LookUp:
        addresses.check("addresses")
        return LookUp(self._session, channel, addresses, target=target)

    def _new_feed_reader(self, channel: Channel, target: Target, cursor: str | None, limit: int) -> FeedReader:
        return FeedReader(self._session, channel, target=target, cursor=cursor, limit=limit)

    def _read_target(self, org_slug: str | None, group_id: str | None, every_group: bool) -> Target:
        target = self._session.target.for_call(org_slug, group_id, all_groups=every_group)
        return Target(target.org_slug, target.group_id)


class Elements:
    """An iterable from the caller. Each iteration continues where the last one ended. Tracebacks do not show it."""

    def __init__(self, elements: Any) -> None:
        self._elements = elements

    def check(self, name: str) -> None:
        """Raise ConfigurationError for a str, which would be iterated by character, and for what is not iterable."""
        if isinstance(self._elements, str | bytes | Item) or not self._is_iterable():
            raise ConfigurationError(f"{name} must be a list or another iterable: put a single element into a list.")

    def __iter__(self) -> Iterator[Any]:
        return self._iterator

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    @cached_property
    def _iterator(self) -> Iterator[Any]:
        return iter(self._elements)

    def _is_iterable(self) -> bool:
        return hasattr(self._elements, "__iter__")


class AsyncElements(Elements):
    """An asynchronous iterable from the caller."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._async_iterator

    @cached_property
    def _async_iterator(self) -> AsyncIterator[Any]:
        return aiter(self._elements)

    def _is_iterable(self) -> bool:
        return True


def as_elements(elements: Any) -> Elements:
    """Wrap an iterable or asynchronous iterable."""
    return AsyncElements(elements) if hasattr(elements, "__aiter__") else Elements(elements)


def _problem_of_key(client_id: str, client_secret: Secret) -> str | None:
    for name, is_good in (("client_id", _is_word(client_id)), ("client_secret", _is_word(client_secret.reveal()))):
        if not is_good:
            return f"{name} must be the text that you were given, without white space or line breaks."
    if client_id.startswith("svc_cs_") or client_secret.reveal().startswith("svc_ci_"):
        return "client_id and client_secret seem to be swapped."
    return None


def _is_word(text: str) -> bool:
    return isinstance(text, str) and text.isascii() and text.isprintable() and text != "" and " " not in text


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_seconds(*, timeout_s: float, total_s: float, renew_ahead_s: float | None) -> None:
    for name, seconds in (("timeout_s", timeout_s), ("total_s", total_s)):
        if not (_is_number(seconds) and 0 < seconds <= _MAX_TIMEOUT_S):
            raise ConfigurationError(f"{name} must be a number of seconds above 0, and at most 86400 (a day).")
    if renew_ahead_s is not None and not (_is_number(renew_ahead_s) and 0 <= renew_ahead_s < _ACCESS_TOKEN_LIFETIME_S):
        raise ConfigurationError(
            "renew_ahead_s must be at least 0 and below 900, the lifetime of an access token in seconds."
        )


def _require_whole_number(number: int, name: str, *, maximum: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= maximum:
        raise ConfigurationError(f"{name} must be a whole number from 1 to {maximum}.")
