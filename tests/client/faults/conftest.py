"""A proxy before the service, and clients by way of it whose waiting takes no time."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.client.partners import Blocking, Opener, Partner, Service
from tests.services.faults import Faults, faults


class Hasty(NamedTuple):
    """A client of either kind by way of the proxy, and how long it would have waited each time; chance is 0."""

    client: Any
    pauses_s: list[float]


HastyOpener = Callable[..., Hasty]
PartnerMaker = Callable[..., Partner]


@pytest.fixture
def between(service: Service) -> Iterator[Faults]:
    """A proxy before the service. Whatever a test does: all of it happens, and no refresh token comes by twice."""
    with faults(service.base_url, service.server.ca.parent) as own:
        yield own
        assert own.planned == 0
        assert own.presented_twice == []


@pytest.fixture
def hasty(both: Opener, between: Faults) -> HastyOpener:
    """Opens such a client of a partner: `hasty(partner, attempts=2)`."""

    def open_client(partner: Partner, **options: Any) -> Hasty:
        client, pauses_s = both(partner, base_url=between.base_url, **options), list[float]()
        core: Any = client.client if isinstance(client, Blocking) else client
        core._session.environment.jitter = lambda: 0.0

        async def pass_by(seconds: float) -> None:
            pauses_s.append(seconds)

        core._driver.sleep = pass_by if isinstance(client, Blocking) else pauses_s.append
        return Hasty(client, pauses_s)

    return open_client
