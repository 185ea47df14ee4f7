"""The doctor's count of administrators and of two-step sign-in."""

from pathlib import Path

import pytest

from stoplist.maintenance.doctor.accounts import AccountFacts
from stoplist.maintenance.doctor.people import people
from tests.maintenance.doctor.installation import settings

PRODUCTION = {"ENVIRONMENT": "production", "BASE_URL": "https://stoplist.example.com"}
COUNTS = "Administrators: 2, with two-step sign-in: 1. All people: 5, with two-step sign-in: 3."


def test_administrators_and_second_steps_are_counted(tmp_path: Path) -> None:
    """In development nothing is a problem."""
    assert people(AccountFacts(), settings(tmp_path)).status == "ok"
    found = people(AccountFacts(5, 3, 2, 1), settings(tmp_path))
    assert (found.check, found.status, found.text) == ("people", "ok", COUNTS)


def test_an_administrator_without_two_step_is_a_warning(tmp_path: Path) -> None:
    found = people(AccountFacts(5, 3, 2, 1), settings(tmp_path, **PRODUCTION))
    assert found.status == "warning"
    assert found.text.startswith(COUNTS)
    assert "STOPLIST_REQUIRE_TWO_STEP=administrators" in found.text
    assert people(AccountFacts(5, 3, 2, 2), settings(tmp_path, **PRODUCTION)).status == "ok"


@pytest.mark.parametrize("facts", [AccountFacts(), AccountFacts(people=3, people_with_two_step=3)])
def test_no_administrator_is_a_warning_in_production(tmp_path: Path, facts: AccountFacts) -> None:
    """The text has the command that makes one."""
    found = people(facts, settings(tmp_path, **PRODUCTION))
    assert found.status == "warning"
    assert "stoplist user create" in found.text


def test_without_a_database_there_is_nothing_to_count(tmp_path: Path) -> None:
    assert people(None, settings(tmp_path)).status == "not checked"
