"""A proxy in front of the service, and clients behind it whose waits take no time."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.client.partners import BlockingAsyncClient, Opener, Partner, Service
from tests.services.faults import Faults


class NoWaitClient(NamedTuple):
    """A client behind the proxy, and the durations of its waits; the jitter is 0."""

    client: Any
    pauses_s: list[float]


NoWaitOpener = Callable[..., NoWaitClient]
PartnerMaker = Callable[..., Partner]


@pytest.fixture
def between(service: Service) -> Iterator[Faults]:
    """A proxy in front of the service. Asserts that all planned faults happened and no refresh token was sent twice."""
    with Faults(service.base_url, service.server.ca.parent) as own:
        yield own
        assert own.planned == 0
        assert own.presented_twice == []


@pytest.fixture
def open_without_waits(open_client: Opener, between: Faults) -> NoWaitOpener:
    """Opens a NoWaitClient of a partner: `open_without_waits(partner, attempts=2)`."""

    def open_one(partner: Partner, **options: Any) -> NoWaitClient:
        client, pauses_s = open_client(partner, base_url=between.base_url, **options), list[float]()
        core: Any = client.client if isinstance(client, BlockingAsyncClient) else client
        core._session.environment.jitter = lambda: 0.0

        async def record_wait(seconds: float) -> None:
            pauses_s.append(seconds)

        core._driver.sleep = record_wait if isinstance(client, BlockingAsyncClient) else pauses_s.append
        return NoWaitClient(client, pauses_s)

    return open_one
