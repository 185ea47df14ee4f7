"""Notices that are printed while a command waits."""

import logging
import re
import time

import pytest
from stoplist_client import FileStore
from stoplist_client.flows import renewal

from tests.client.cli.command_runner import LogIn, RunCommand
from tests.client.faults.answers import refusal
from tests.client.partners import Partner
from tests.services.fault_kinds import is_api
from tests.services.faults import Faults


@pytest.mark.parametrize(("retry_after", "is_reported"), [("36", True), ("1", False)])
def test_long_wait_is_reported(
    cli: RunCommand,
    partner: Partner,
    log_in: LogIn,
    monkeypatch: pytest.MonkeyPatch,
    retry_after: str,
    is_reported: bool,
) -> None:
    """One line gives the duration and the reason; short waits are not reported."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as proxy:
        away = partner._replace(service=partner.service._replace(server=_ProxyServer(proxy)))  # type: ignore[arg-type]
        log_in(away)
        proxy.next(refusal(429, "rate_limited", Retry_After=retry_after), when=is_api)
        result = cli("look-up", "email", "ann@example.com")
    assert result.status == 0, result
    assert result.err_text.count("\n") == is_reported
    # Retry-After, and up to a tenth more.
    line = re.fullmatch(r"stoplist-client: Waiting (3[6-9]|40) s: the service answered 429\.\n", result.err_text)
    assert (line is not None) is is_reported


class _ProxyServer:
    """A proxy in place of its server."""

    def __init__(self, proxy: Faults) -> None:
        self.base_url, self.ca = proxy.base_url, proxy.ca


def test_unwritable_token_store_is_reported(
    cli: RunCommand, partner: Partner, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command still works, and the logger is restored afterwards."""
    log_in(partner)

    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    before = logging.getLogger("stoplist_client").level
    monkeypatch.setattr("stoplist_client.files.private_file.os.replace", refuse)
    result = cli("look-up", "email", "ann@example.com")
    assert result.status == 0
    assert result.err_text.startswith("stoplist-client: The new tokens are used in this process only")
    assert "MemoryStore" not in result.err_text
    assert logging.getLogger("stoplist_client").handlers == []
    assert logging.getLogger("stoplist_client").level == before


def test_wait_for_another_worker_is_reported_once(
    cli: RunCommand, partner: Partner, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process holds the lock of the tokens."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    # The wait is added up from the pauses, so longer ones need fewer attempts.
    monkeypatch.setattr(renewal, "_MIN_PAUSE_S", 1.0)
    monkeypatch.setattr(renewal, "_MAX_PAUSE_S", 2.0)
    log_in(partner)
    unlock = FileStore().of(partner.service.base_url, partner.key.client_id).try_lock()
    assert unlock is not None
    result = cli("look-up", "email", "ann@example.com")
    unlock()
    assert result.status == 1
    assert result.err_text.count("Waiting for another worker, which is renewing the tokens.\n") == 1
    assert result.err_text.count("\n") == 2
