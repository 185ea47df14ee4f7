"""Messages of the SDK in the terms of the command line."""

import re
from pathlib import Path

import pytest
from stoplist_client import ConfigurationError, DefaultGroupNotConfigured, InvalidItem, TokenStoreError
from stoplist_client.cli.messages import message_of

from tests.client.cli.command_runner import LogIn, RunCommand
from tests.client.partners import Partner

_SDK_TERMS = re.compile(r"Prefer|Basic|\w+_(url|file|slug|id)\b|\w+\(\)")


def test_wrong_secret_is_explained_without_http_terms(cli: RunCommand, partner: Partner) -> None:
    """The code and the request id stay, for the operator."""
    access = ["--base-url", partner.service.base_url, "--client-id", partner.key.client_id]
    result = cli("login", *access, "--ca-file", partner.service.ca_file, "--secret-stdin", stdin=b"svc_cs_wrong")
    result.assert_failed(
        1, "401 invalid_client: The key is unknown to this service, its secret is wrong, or it was deactivated"
    )
    assert not _SDK_TERMS.search(result.err_text)


def test_messages_name_options_instead_of_parameters(cli: RunCommand, partner: Partner, tmp_path: Path) -> None:
    access = ["--client-id", partner.key.client_id, "--secret-stdin"]
    result = cli("login", *access, "--base-url", "http://localhost", stdin=b"svc_cs_x")
    result.assert_failed(2, "The base address (--base-url) must be https://")
    file = tmp_path / "none.pem"
    file.write_text("no certificate")
    result = cli("login", *access, "--base-url", "https://localhost", "--ca-file", str(file), stdin=b"svc_cs_x")
    result.assert_failed(2, "The certificate file (--ca-file) cannot be read")


def test_file_in_place_of_a_folder_is_called_that(
    cli: RunCommand, partner: Partner, log_in: LogIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is where the client's folder or that of a mirror should be."""
    log_in(partner)
    file = tmp_path / "file"
    file.write_text("")
    problem = f"{file} is a file, not a folder"
    cli("sync", "--mirror", str(file / "mirror.db")).assert_failed(1, problem)
    monkeypatch.setenv("STOPLISTCLIENT_DIR", str(file / "below"))
    for name, value in (("BASE_URL", partner.service.base_url), ("CLIENT_ID", "svc_ci_x"), ("CLIENT_SECRET", "x")):
        monkeypatch.setenv(f"STOPLISTCLIENT_{name}", value)
    cli("sync").assert_failed(1, problem)


def test_unwritable_folder_is_reported_with_its_variable(
    cli: RunCommand, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MemoryStore, which the SDK suggests too, is not available to commands."""

    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("stoplist_client.files.private_file.os.replace", refuse)
    access = ["--base-url", partner.service.base_url, "--client-id", partner.key.client_id, "--org", partner.org_slug]
    stdin = partner.key.client_secret.encode()
    result = cli("login", *access, "--ca-file", partner.service.ca_file, "--secret-stdin", stdin=stdin)
    result.assert_failed(1, "correct that, or name a folder that this user may write to with STOPLISTCLIENT_DIR.")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigurationError("Several: name the org_slug."), "Several: name the organization (--org)."),
        (ConfigurationError("This group_id is one of x."), "This group (--group) is one of x."),
        (ConfigurationError("org_slug must be text."), "The organization (--org) must be text."),
        (TokenStoreError("Mend that, or use FileStore()."), "Mend that, or log in without --keyring."),
        (
            DefaultGroupNotConfigured("Send a group_id.", status=400, request_id="req_1"),
            "400 default_group_not_configured: The organization has no default group: add --group ID or --all-groups. "
            "(request req_1)",
        ),
        (InvalidItem("Nothing was understood.", status=400), "400 invalid_item: Nothing was understood."),
    ],
)
def test_sdk_terms_are_replaced(error: ConfigurationError, text: str) -> None:
    """Replaced within a sentence and at its beginning; other texts stay as they are."""
    assert message_of(error) == text
