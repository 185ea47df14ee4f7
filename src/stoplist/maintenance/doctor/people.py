"""Checks who can administer the deployment: how many administrators there are, and who uses two-step sign-in."""

from stoplist.maintenance.doctor.accounts import AccountFacts
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, warning
from stoplist.settings import Settings

CHECK = "people"


def people(accounts: AccountFacts | None, settings: Settings) -> Finding:
    """Count the enabled accounts; `accounts` is None if there is no database to read.

    A warning in production if nobody is an administrator, or if an administrator signs in by password alone.
    """
    if accounts is None:
        return not_checked(CHECK, "There are no accounts to read.")
    if settings.environment != "production":
        return ok(CHECK, _counts(accounts))
    if not accounts.administrators:
        return warning(
            CHECK, f"{_counts(accounts)} `stoplist user create EMAIL --administrator` makes somebody an administrator."
        )
    if accounts.administrators_with_two_step < accounts.administrators:
        return warning(
            CHECK,
            f"{_counts(accounts)} Every administrator should turn it on, under Account; "
            "STOPLIST_REQUIRE_TWO_STEP=administrators demands it.",
        )
    return ok(CHECK, _counts(accounts))


def _counts(accounts: AccountFacts) -> str:
    return (
        f"Administrators: {accounts.administrators}, with two-step sign-in: {accounts.administrators_with_two_step}. "
        f"All people: {accounts.people}, with two-step sign-in: {accounts.people_with_two_step}."
    )
