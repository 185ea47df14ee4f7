"""Malformed numbers and names are wrong usage, however long they are."""

import pytest

from stoplist.oauth.model import MAX_PER_MINUTE
from tests.cli.command_line import Prompt

ID = "svc_ci_0123456789ABCDEFGHIJKL"


@pytest.mark.parametrize(
    "number",
    [
        "1" * 5000,
        "0" * 5000,
        "0" * 19 + "1" * 4981,
        "0" * 19 + "1" * 21,
        "9" * 20,
        str(MAX_PER_MINUTE + 1),
        "0",
        "-1",
        "1e3",
        "1_000",
        "٣",
        " 1",
        "",
    ],
    ids=lambda number: f"{number[:2]}..{number[-2:]} of {len(number)}",
)
@pytest.mark.parametrize("option", ["--api-per-minute", "--token-per-minute"])
def test_a_malformed_ceiling_is_wrong_usage(empty: Prompt, option: str, number: str) -> None:
    """It may have more than 4300 digits, which Python refuses to convert."""
    assert f"from 1 to {MAX_PER_MINUTE}" in empty.wrong_usage("key", "limits", ID, f"{option}={number}")
    assert list(empty.folder.iterdir()) == []


@pytest.mark.parametrize("control", [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))], ids=ascii)
def test_a_name_with_bidi_controls_is_wrong_usage(empty: Prompt, control: str) -> None:
    """Such characters make one name of an organization, a group or a key look like another."""
    name = f"Acme {control}seohS"
    for command in (
        ["org", "create", "acme", "--name", name],
        ["org", "rename", "acme", "--name", name],
        ["group", "create", "--org", "acme", "--name", name],
        ["key", "create", "--org", "acme", "--label", name],
        ["key", "update", ID, "--label", name],
    ):
        assert "control characters" in empty.wrong_usage(*command)
