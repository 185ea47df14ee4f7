"""The words of the command line for errors that speak to programs."""

import re
from pathlib import Path

import pytest
from stoplist_client import ConfigurationError, DefaultGroupNotConfigured, InvalidItem, TokenStoreError
from stoplist_client.cli.messages import spoken

from tests.client.cli.typing_commands import Typed
from tests.client.partners import Partner

_OF_PROGRAMS = re.compile(r"Prefer|Basic|\w+_(url|file|slug|id)\b|\w+\(\)")


def test_a_wrong_secret_is_not_answered_with_http(typed: Typed, partner: Partner) -> None:
    """Code and request stay, for the operator."""
    access = ["--base-url", partner.service.base_url, "--client-id", partner.key.client_id]
    done = typed("login", *access, "--ca-file", partner.service.ca_file, "--secret-stdin", stdin=b"svc_cs_wrong")
    done.failed(1, "401 invalid_client: The key is unknown here, its secret is wrong, or it was deactivated")
    assert not _OF_PROGRAMS.search(done.told)


def test_options_are_named_as_they_are_typed(typed: Typed, partner: Partner, tmp_path: Path) -> None:
    """Not as arguments of a class."""
    access = ["--client-id", partner.key.client_id, "--secret-stdin"]
    done = typed("login", *access, "--base-url", "http://localhost", stdin=b"svc_cs_x")
    done.failed(2, "The base address (--base-url) must be https://")
    file = tmp_path / "none.pem"
    file.write_text("no certificate")
    done = typed("login", *access, "--base-url", "https://localhost", "--ca-file", str(file), stdin=b"svc_cs_x")
    done.failed(2, "The file of certificates (--ca-file) cannot be read")


def test_a_folder_that_cannot_be_written_names_what_helps_here(
    typed: Typed, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store for tests of programs is none for commands."""

    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("stoplist_client.files.private_file.os.replace", refuse)
    access = ["--base-url", partner.service.base_url, "--client-id", partner.key.client_id, "--org", partner.org_slug]
    stdin = partner.key.secret.encode()
    done = typed("login", *access, "--ca-file", partner.service.ca_file, "--secret-stdin", stdin=stdin)
    done.failed(1, "mend that, or name a folder that this user may write to with STOPLISTCLIENT_DIR.")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigurationError("Several: name the org_slug."), "Several: name the organization (--org)."),
        (ConfigurationError("This group_id is one of x."), "This group (--group) is one of x."),
        (ConfigurationError("org_slug must be text."), "The organization (--org) must be text."),
        (TokenStoreError("Mend that, or use FileStore()."), "Mend that, or log in without --keyring."),
        (
            DefaultGroupNotConfigured("Send a group_id.", status=400, request_id="req_1"),
            "400 default_group_not_configured: The organization has no default group: say --group, or --all-groups. "
            "(request req_1)",
        ),
        (InvalidItem("Nothing was understood.", status=400), "400 invalid_item: Nothing was understood."),
    ],
)
def test_words_for_programs_become_those_of_the_command_line(error: ConfigurationError, text: str) -> None:
    """Within a sentence and at its beginning; what is not known stays as it is."""
    assert spoken(error) == text
