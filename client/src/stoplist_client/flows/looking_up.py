"""Ask what the service knows of single addresses. Source: docs/interface.md section D6 (GET, `address`)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from stoplist_client.errors import BadRequest, ConfigurationError
from stoplist_client.flows.answers import not_understood, understood
from stoplist_client.flows.flow import Flow, Send, take
from stoplist_client.flows.sending import Session, call
from stoplist_client.flows.target import Target, encoded, path_of
from stoplist_client.model import Channel, ItemError, LookedUp, Record
from stoplist_client.redacted import Redacted

MOST_ADDRESSES = 100
# What the service reads of a head is twice that.
MOST_URL_BYTES = 32 * 1024
# Docs/interface.md section D7: longer text is no address on any channel.
_LONGEST_ADDRESS = 1024


class _Found(Redacted, msgspec.Struct, frozen=True):
    items: list[Record]
    looked_up: list[str]


_FOUND = msgspec.json.Decoder(_Found)


class LookUp:
    """All addresses of one call, and how far they were looked up."""

    def __init__(self, session: Session, channel: Channel, source: Any, *, target: Target) -> None:
        self._session, self._channel, self._source = session, channel, source
        self._path, self._query = path_of(channel), target.query()
        self._asked: list[str] = []  # read, and not yet looked up
        self._read = 0

    def __repr__(self) -> str:
        return f"LookUp({self._read} addresses read)"

    def further(self) -> Flow[Sequence[LookedUp] | None]:
        """What is known of the next addresses, one request of them, in their order; None after the last."""
        self._add((yield from take(self._source, MOST_ADDRESSES - len(self._asked))))
        if not self._asked:
            return None
        chosen, url = self._request()
        request = Send(method="GET", url=url, headers={})
        try:
            answer = yield from call(self._session, request)
        except BadRequest as error:
            if error.parameter == "address":
                error.item_errors = self._bad(chosen)
            raise
        found = understood(answer, _FOUND)
        if len(found.looked_up) != len(chosen):
            raise not_understood(answer, "The answer does not count the addresses that were asked for.")
        self._asked = self._asked[len(chosen) :]
        return _paired(chosen, found)

    def _add(self, addresses: list[Any]) -> None:
        for index, address in enumerate(addresses, self._read):
            if not isinstance(address, str):
                raise ConfigurationError(f"Address {index} must be text.")
            if len(address) > _LONGEST_ADDRESS:
                raise ConfigurationError(f"Address {index} is none: it has more than {_LONGEST_ADDRESS} characters.")
        self._asked += addresses
        self._read += len(addresses)

    def _request(self) -> tuple[list[str], str]:
        """As many as one URL holds, and that URL."""
        parameters = list(self._query)
        size = len(self._path) + sum(len(parameter) + 1 for parameter in parameters)
        for count, address in enumerate(self._asked):
            parameter = f"address={encoded(address)}"
            size += len(parameter) + 1
            if size > MOST_URL_BYTES and count:
                break
            parameters.append(parameter)
        chosen = self._asked[: len(parameters) - len(self._query)]
        return chosen, f"{self._path}?{'&'.join(parameters)}"

    def _bad(self, addresses: list[str]) -> tuple[ItemError, ...]:
        """Which of these addresses are none, by the rules that the service has too: its answer does not name them."""
        import stoplist_addresses  # noqa: PLC0415 - it takes as long to import as all of ours, and few need it

        first, bad = self._read - len(self._asked), []
        for index, address in enumerate(addresses, first):
            try:
                stoplist_addresses.RULES[self._channel](address)
            except stoplist_addresses.AddressError as error:
                bad.append(ItemError(index, address, str(error)))
        return tuple(bad)


def _paired(addresses: list[str], found: _Found) -> list[LookedUp]:
    records: dict[str, list[Record]] = {}
    for record in found.items:
        records.setdefault(record.address, []).append(record)
    return [
        LookedUp(address=address, canonical=canonical, records=tuple(records.get(canonical, ())))
        for address, canonical in zip(addresses, found.looked_up, strict=True)
    ]
