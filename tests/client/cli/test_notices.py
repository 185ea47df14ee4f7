"""What is told while a command waits."""

import logging
import re
import time

import pytest
from stoplist_client import FileStore
from stoplist_client.flows import renewal

from tests.client.cli.typing_commands import Logged, Typed
from tests.client.faults.answers import refusal
from tests.client.partners import Partner
from tests.services.faults import Faults, faults
from tests.services.mishaps import is_api


@pytest.mark.parametrize(("retry_after", "told"), [("36", True), ("1", False)])
def test_a_long_wait_is_told(
    typed: Typed, partner: Partner, log_in: Logged, monkeypatch: pytest.MonkeyPatch, retry_after: str, told: bool
) -> None:
    """With its length and its reason, in one line; a short one is not worth it."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    with faults(partner.service.base_url, partner.service.server.ca.parent) as proxy:
        away = partner._replace(service=partner.service._replace(server=_Before(proxy)))  # type: ignore[arg-type]
        log_in(away)
        proxy.next(refusal(429, "rate_limited", Retry_After=retry_after), when=is_api)
        done = typed("look-up", "email", "ann@example.com")
    assert done.status == 0, done
    assert done.told.count("\n") == told
    # As long as the service says, and up to a tenth longer.
    line = re.fullmatch(r"stoplist-client: Waiting (3[6-9]|40) s: the service answered 429\.\n", done.told)
    assert (line is not None) is told


class _Before:
    """A proxy in the place of its server."""

    def __init__(self, proxy: Faults) -> None:
        self.base_url, self.ca = proxy.base_url, proxy.ca


def test_tokens_that_cannot_be_kept_are_told_in_words_of_the_command_line(
    typed: Typed, partner: Partner, log_in: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command works all the same; afterwards the logger is as it was."""
    log_in(partner)

    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    before = logging.getLogger("stoplist_client").level
    monkeypatch.setattr("stoplist_client.files.private_file.os.replace", refuse)
    done = typed("look-up", "email", "ann@example.com")
    assert done.status == 0
    assert done.told.startswith("stoplist-client: The new tokens are used in this process alone")
    assert "MemoryStore" not in done.told
    assert logging.getLogger("stoplist_client").handlers == []
    assert logging.getLogger("stoplist_client").level == before


def test_a_wait_for_another_worker_is_told_once(
    typed: Typed, partner: Partner, log_in: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another process holds the lock beside the tokens."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    # It counts how long it has waited: with long pauses a few hundred tries are enough.
    monkeypatch.setattr(renewal, "_SHORTEST_PAUSE_S", 1.0)
    monkeypatch.setattr(renewal, "_LONGEST_PAUSE_S", 2.0)
    log_in(partner)
    unlock = FileStore().of(partner.service.base_url, partner.key.client_id).try_lock()
    assert unlock is not None
    done = typed("look-up", "email", "ann@example.com")
    unlock()
    assert done.status == 1
    assert done.told.count("Waiting for another worker, which is getting tokens.\n") == 1
    assert done.told.count("\n") == 2
