"""Commands of the client print what others wrote with escapes."""

import pytest
from stoplist_addresses.control_characters import CONTROLS
from stoplist_client.cli import escapes
from stoplist_client.cli.exit_status import print_notice
from stoplist_client.cli.printing import print_json, print_table


def test_the_characters_are_those_that_the_service_stores_as_spaces() -> None:
    assert escapes._CONTROLS == CONTROLS


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """A `source` of another partner, or an error text of the service, moves no cursor and forges no row."""
    hostile = "a\x1b[2J\n\u202eb"
    print_table(["source"], [[hostile]])
    print_json({"source": "a\x9b\u202eb"}, is_indented=False)
    print_notice("Refused: \x1b]0;title\x07.")
    printed = capsys.readouterr()
    assert printed.out == 'source\na\\x1b[2J\\x0a\\u202eb\n{"source":"a\\u009b\\u202eb"}\n'
    assert printed.err == "stoplist-client: Refused: \\x1b]0;title\\x07.\n"
