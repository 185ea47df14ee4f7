"""Looks up the service's records of single addresses. Source: docs/interface.md section D6 (GET, `address`)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from stoplist_client.errors import BadRequest, ConfigurationError
from stoplist_client.flows.answers import decode_answer, not_understood
from stoplist_client.flows.flow import Flow, Send, take
from stoplist_client.flows.sending import Session, call
from stoplist_client.flows.target import Target, channel_path, query_value
from stoplist_client.model import Channel, ItemError, LookedUp, Record
from stoplist_client.redacted import Redacted

MAX_ADDRESSES = 100
# Half of the request head that the service accepts.
MAX_URL_BYTES = 32 * 1024
# A longer text is not an address on any channel (docs/interface.md section D7).
_MAX_ADDRESS_CHARS = 1024


class _LookUpBody(Redacted, msgspec.Struct, frozen=True):
    items: list[Record]
    looked_up: list[str]


_LOOK_UP_BODY = msgspec.json.Decoder(_LookUpBody)


class LookUp:
    """Looks up the addresses of one call, one request at a time."""

    def __init__(self, session: Session, channel: Channel, source: Any, *, target: Target) -> None:
        self._session, self._channel, self._source = session, channel, source
        self._path, self._query = channel_path(channel), target.query()
        self._pending: list[str] = []  # read, and not yet looked up
        self._read = 0

    def __repr__(self) -> str:
        return f"LookUp({self._read} addresses read)"

    def next_results(self) -> Flow[Sequence[LookedUp] | None]:
        """Return the results for the addresses of the next request, in order, or None after the last one."""
        self._add((yield from take(self._source, MAX_ADDRESSES - len(self._pending))))
        if not self._pending:
            return None
        requested, url = self._request()
        request = Send(method="GET", url=url, headers={})
        try:
            answer = yield from call(self._session, request)
        except BadRequest as error:
            if error.parameter == "address":
                error.item_errors = self._invalid_items(requested)
            raise
        body = decode_answer(answer, _LOOK_UP_BODY)
        if len(body.looked_up) != len(requested):
            raise not_understood(answer, "The answer has another number of addresses than the request.")
        self._pending = self._pending[len(requested) :]
        return _to_results(requested, body)

    def _add(self, addresses: list[Any]) -> None:
        for index, address in enumerate(addresses, self._read):
            if not isinstance(address, str):
                raise ConfigurationError(f"Address {index} must be a str.")
            if len(address) > _MAX_ADDRESS_CHARS:
                raise ConfigurationError(
                    f"Address {index} is not valid: it has more than {_MAX_ADDRESS_CHARS} characters."
                )
        self._pending += addresses
        self._read += len(addresses)

    def _request(self) -> tuple[list[str], str]:
        """Return as many pending addresses as fit into one URL, and that URL."""
        parameters = list(self._query)
        size = len(self._path) + sum(len(parameter) + 1 for parameter in parameters)
        for count, address in enumerate(self._pending):
            parameter = f"address={query_value(address)}"
            size += len(parameter) + 1
            if size > MAX_URL_BYTES and count:
                break
            parameters.append(parameter)
        requested = self._pending[: len(parameters) - len(self._query)]
        return requested, f"{self._path}?{'&'.join(parameters)}"

    def _invalid_items(self, addresses: list[str]) -> tuple[ItemError, ...]:
        """Return the invalid addresses among these by the rules of the service, whose answer does not name them."""
        import stoplist_addresses  # noqa: PLC0415 - slow to import, and rarely needed

        first, errors = self._read - len(self._pending), []
        for index, address in enumerate(addresses, first):
            try:
                stoplist_addresses.RULES[self._channel](address)
            except stoplist_addresses.AddressError as error:
                errors.append(ItemError(index, address, str(error)))
        return tuple(errors)


def _to_results(addresses: list[str], body: _LookUpBody) -> list[LookedUp]:
    records: dict[str, list[Record]] = {}
    for record in body.items:
        records.setdefault(record.address or "", []).append(record)
    return [
        LookedUp(address=address, canonical=canonical, records=tuple(records.get(canonical, ())))
        for address, canonical in zip(addresses, body.looked_up, strict=True)
    ]
