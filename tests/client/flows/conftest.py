"""The server behind a proxy with faults, and the tokens that it stored."""

from collections.abc import Iterator

import pytest

from tests.client.partners import Partner
from tests.client.renewal_workers import TokenRows
from tests.services.faults import Faults


@pytest.fixture
def token_rows(partner: Partner) -> TokenRows:
    """Return the partner's tokens in the server's database."""
    return TokenRows(partner)


@pytest.fixture
def between(partner: Partner) -> Iterator[Faults]:
    """Yield a proxy with faults. Assert that no refresh token was sent twice, and the server raised no alarm."""
    server = partner.service.server
    with Faults(server.base_url, server.ca.parent) as between:
        yield between
        assert between.presented_twice == []
        assert TokenRows(partner).reuse_alarms == 0
