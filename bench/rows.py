"""The rows of the table on tokens: the work of each, its baseline, and its target."""

from collections.abc import Callable, Sequence

import msgspec

from bench.load import Script
from bench.scripts import Partner, RefreshChain, Repeat, client_credentials, read, refresh

FEW_TOKENS = 10_000
MANY_TOKENS = 1_000_000

MAX_SLOWER_WITH_MANY = 1.5
MAX_START_RATIO = 2.5
MAX_MEMORY_MIB = 120
MIN_CLIENT_LEAD = 1.5


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of work. `product_script` and `bare_script` return the script of the n-th connection."""

    key: str
    title: str
    connections: int
    bare_app: str
    min_share: float
    product_script: Callable[[Sequence[Partner], int, bytes], Script]
    bare_script: Callable[[Sequence[Partner], int], Script]


def _partner(partners: Sequence[Partner], number: int) -> Partner:
    return partners[number % len(partners)]


def _reads(partners: Sequence[Partner], number: int) -> list[bytes]:
    """Return requests with different tokens for each connection, so that the whole index is read."""
    connections_a_partner = ROWS[2].connections // len(partners)
    tokens = _partner(partners, number).access_tokens[number // len(partners) :: connections_a_partner]
    return [read(token) for token in tokens]


ROWS = (
    Row(
        key="client_credentials",
        title="client_credentials, 32 connections",
        connections=32,
        bare_app="form_echo",
        min_share=0.18,
        product_script=lambda partners, number, _: Repeat([client_credentials(_partner(partners, number))]),
        bare_script=lambda partners, number: Repeat([client_credentials(_partner(partners, number))]),
    ),
    Row(
        key="refresh",
        title="refresh chains, 16 at once",
        connections=16,
        bare_app="form_echo",
        min_share=0.14,
        product_script=lambda partners, number, _: RefreshChain(_partner(partners, number)),
        bare_script=lambda partners, number: Repeat([refresh()]),
    ),
    Row(
        key="bearer",
        title="bearer-checked, limited request, 32 connections",
        connections=32,
        bare_app="starlette",
        min_share=0.45,
        product_script=lambda partners, number, status: Repeat(_reads(partners, number), status),
        bare_script=lambda partners, number: Repeat(_reads(partners, number)),
    ),
)
