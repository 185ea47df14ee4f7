"""`stoplist serve` refuses to start with wrong settings. Running servers are tested in tests/e2e."""

import pytest

from tests.cli.command_line import Prompt

POSTGRESQL = "postgresql://stoplist@127.0.0.1:1/none"
KEY = "k" * 32

# Variables, flags, and a text that the error must contain.
REFUSED: dict[str, tuple[dict[str, str], list[str], str]] = {
    "an unknown variable": ({"UNKNOWN": "x"}, [], "STOPLIST_UNKNOWN"),
    "an unknown variable that is empty": ({"UNKNOWN": ""}, [], "STOPLIST_UNKNOWN"),
    "a malformed variable": ({"DRAIN_S": "soon"}, [], "STOPLIST_DRAIN_S"),
    "a malformed variable that a flag overrides": ({"PORT": "x"}, ["--port", "8443"], "STOPLIST_PORT"),
    "several workers": ({"WORKERS": "2"}, [], "STOPLIST_WORKERS"),
    "several workers by a flag": ({}, ["--workers", "2"], "--workers"),
    "several workers that count apart": (
        {"DATABASE_URL": POSTGRESQL, "SECRET_KEY": KEY, "LIMITS_URL": "memory:", "WORKERS": "2"},
        [],
        "STOPLIST_LIMITS_URL",
    ),
    "PostgreSQL without a word on limits": ({"DATABASE_URL": POSTGRESQL, "SECRET_KEY": KEY}, [], "STOPLIST_LIMITS_URL"),
    "PostgreSQL without a secret key": (
        {"DATABASE_URL": POSTGRESQL, "LIMITS_URL": "memory:"},
        [],
        "STOPLIST_SECRET_KEY",
    ),
    "production without a base address": ({}, ["--environment", "production"], "STOPLIST_BASE_URL"),
    "production without a certificate": ({}, ["--environment", "production"], "STOPLIST_TLS_CERT"),
    "a certificate without its key": ({"TLS_CERT": "cert.pem"}, [], "STOPLIST_TLS_KEY"),
    "a certificate that is not there": ({"TLS_CERT": "cert.pem", "TLS_KEY": "key.pem"}, [], "STOPLIST_TLS_CERT"),
    "a file in place of the data folder": ({}, ["--data-dir", __file__], "is a file"),
    "a demo in production": ({"ENVIRONMENT": "production"}, ["--demo"], "--demo"),
}


def test_all_wrong_options_and_settings_are_in_one_message(empty: Prompt) -> None:
    """Wrong usage, as a single wrong option is."""
    empty.set(DRAIN_S="soon")
    text = empty.wrong_usage("serve", "--port", "http", "--workers", "0", "--environment", "production")
    for part in (
        "--port must be",
        "not 'http'",
        "--workers must be",
        "STOPLIST_DRAIN_S must",
        "STOPLIST_BASE_URL must",
    ):
        assert part in text


@pytest.mark.parametrize(("variables", "flags", "named"), REFUSED.values(), ids=REFUSED)
def test_a_server_with_wrong_settings_does_not_start(
    empty: Prompt, variables: dict[str, str], flags: list[str], named: str
) -> None:
    """The exit status is 1, the error names what is wrong, and nothing is created."""
    empty.set(**variables)
    result = empty.run("serve", *flags)
    assert (result.status, result.out) == (1, "")
    assert named in result.err
    assert list(empty.folder.iterdir()) == []
