"""A mirror presents a cursor as proof only of changes that it has stored and answers from (interface section D14)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import pytest
from stoplist_client import Client, MemoryStore, Mirror, MirrorDiverged, NotMirrored
from stoplist_client.mirror import FeedSynced

from tests.client.mirror.test_divergence import damage_copy
from tests.client.partners import Partner, Service
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import Key
from tests.services.fault_kinds import Reply
from tests.services.faults import Faults
from tests.services.http_messages import Request


@pytest.fixture(scope="module")
def between(service: Service) -> Iterator[Faults]:
    """Sees all requests of the mirror."""
    with Faults(service.base_url, service.server.ca.parent) as proxy:
        yield proxy


@pytest.fixture
def mirror(partner: Partner, between: Faults, new_mirror: Callable[..., Mirror]) -> Iterator[Mirror]:
    """A mirror with small pages whose requests pass the proxy."""
    between.forget()
    with partner.client(
        org_slug=partner.org_slug,
        base_url=between.base_url,
        ca_file=str(between.ca),
        store=MemoryStore(),
        attempts=1,
    ) as client:
        mirror = new_mirror(client, page_records=3)
        mirror.follow("email")
        yield mirror


def asked(between: Faults) -> list[str]:
    """Return one word for each request of the feed since the last call: what its cursor claims."""
    words = [_claim(request) for request in between.arrived if request.path.startswith("/api")]
    between.forget()
    return words


def _claim(request: Request) -> str:
    query = parse_qs(urlsplit(request.target).query)
    if "cursor" not in query:
        assert "prefer" not in request.headers
        return "from the start"
    if request.headers.get("prefer", "").endswith("read-ahead"):
        return "reads ahead"
    return "confirms" if query["limit"] == ["1"] else "stored"


def test_pages_are_read_ahead_and_confirmed_at_the_end(client: Client, mirror: Mirror, between: Faults) -> None:
    """Each further page is requested while the one before is being stored, so its request must claim nothing."""
    client.unsubscribe("email", [_of(number) for number in range(7)])
    mirror.sync()
    assert asked(between) == ["from the start", "reads ahead", "reads ahead", "confirms"]
    client.unsubscribe("email", [_of(number) for number in range(10, 14)])
    mirror.sync()
    assert asked(between) == ["stored", "reads ahead", "confirms"]
    mirror.sync()
    assert asked(between) == ["stored"]
    assert mirror.sync().records == 0, "a confirmation moves the mirror nowhere"


def test_a_copy_that_is_being_read_proves_nothing(client: Client, mirror: Mirror, between: Faults) -> None:
    """Its rows do not answer yet, also where an interrupted read goes on."""
    client.unsubscribe("email", [_of(number) for number in range(4)])

    with pytest.raises(KeyboardInterrupt):
        mirror.sync(Mock(side_effect=KeyboardInterrupt))
    while len(between.seen) < 3:  # the token, and two pages
        pass
    between.forget()
    mirror.sync()
    assert asked(between) == ["reads ahead", "confirms"]


def test_a_mirror_that_differs_confirms_nothing(
    client: Client, mirror: Mirror, between: Faults, tmp_path: Path
) -> None:
    """This holds from the moment at which the difference is known until a new copy agrees."""
    client.unsubscribe("email", [_of(number) for number in range(4)])
    mirror.sync()
    damage_copy(tmp_path / "mirror.db", "a record is dropped", 2)
    with pytest.raises(MirrorDiverged):
        mirror.verify()
    between.forget()
    mirror.sync()
    assert asked(between) == ["reads ahead", "from the start", "reads ahead", "confirms"]


def test_a_copy_that_differs_again_is_never_confirmed(
    client: Client, mirror: Mirror, between: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers, but the service must not be told that it is complete."""
    monkeypatch.setattr("stoplist_client.mirror.divergence._agrees", lambda *_, **__: False)
    client.unsubscribe("email", [_of(1)])
    for expected in (["from the start", "from the start"], ["reads ahead"]):
        with pytest.raises(MirrorDiverged):
            mirror.sync()
        assert asked(between) == expected
    assert mirror.position("email") == 1


def test_a_confirmation_that_fails_does_not_fail_the_synchronisation(
    client: Client, mirror: Mirror, between: Faults
) -> None:
    client.unsubscribe("email", [_of(1)])
    between.next(Reply(status=503), when=lambda request: "limit=1&" in request.target)
    assert mirror.sync().records == 1
    assert between.planned == 0


def test_a_change_that_was_waited_for_is_confirmed(client: Client, mirror: Mirror, between: Faults) -> None:
    """It counts as one more request in the pause after it."""
    mirror.sync()
    between.forget()
    client.unsubscribe("email", [_of(1)])
    pauses: list[float] = []
    mirror._held.pause_s = lambda now_s: pauses.append(mirror._held._interval._requests) or 0.0  # type: ignore[method-assign, func-returns-value]
    while not mirror.sync(wait=30).records:
        pass
    assert between.arrived[-2].headers["prefer"] == "wait=30"
    assert asked(between) == ["stored", "confirms"]
    assert pauses[-1] >= 2


def test_position_is_the_last_change_that_answers(
    client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """None before the feed was read to its end, and an error while the copy differs."""
    reader: Any = new_mirror()
    assert reader.position("email") is None
    mirror.sync()
    assert reader.position("email") == 0
    client.unsubscribe("email", [_of(number) for number in range(4)])
    assert (reader.position("email"), mirror.sync().records, reader.position("email")) == (0, 4, 4)
    with pytest.raises(NotMirrored):
        reader.position("sms")
    with pytest.raises(NotMirrored):
        reader.position("email", org_slug="another")
    damage_copy(tmp_path / "mirror.db", "a record is dropped", 2)
    with pytest.raises(MirrorDiverged):
        reader.verify()
    with pytest.raises(MirrorDiverged):
        reader.position("email")


def test_the_service_shows_the_position_of_the_mirror(tmp_path: Path) -> None:
    """A mirror that stored all pages stands at the head; one that was interrupted has told nothing yet."""
    installation = Installation(tmp_path / "service")
    installation.folder.mkdir()
    with installation.serving() as server:
        keys = [installation.new_key(), installation.new_key()]
        whole, interrupted = (_access(server, key) for key in keys)
        with Client(**whole) as client, Mirror(tmp_path / "whole.db", client, page_records=3) as mirror:
            client.unsubscribe("email", [_of(number) for number in range(7)], all_groups=True)
            mirror.follow("email")
            mirror.sync()
            assert mirror.position("email") == 7
        with Client(**interrupted) as client, Mirror(tmp_path / "interrupted.db", client, page_records=3) as mirror:
            mirror.follow("email")
            with pytest.raises(KeyboardInterrupt):
                mirror.sync(_stop_after_two_pages)
        assert server.terminate() == 0
    shown = {row["client_id"]: row for row in installation.json("propagation") if row["channel"] == "email"}
    standings = [(shown[key.client_id]["position"], shown[key.client_id]["standing"]) for key in keys]
    assert standings == [(7, "current"), (0, "reads_anew")]


def _access(server: RunningServer, key: Key) -> dict[str, Any]:
    return {
        "base_url": server.base_url,
        "ca_file": str(server.ca),
        "client_id": key.client_id,
        "client_secret": key.client_secret,
        "org_slug": "acme",
        "store": MemoryStore(),
    }


def _stop_after_two_pages(progress: FeedSynced) -> None:
    if progress.pages == 2:
        raise KeyboardInterrupt


def _of(number: int) -> str:
    return f"p{number}@example.org"
