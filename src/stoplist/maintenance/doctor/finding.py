"""The result of a check. Its text says what was found and, if that is wrong, what would be right."""

import msgspec

OK, WARNING, WRONG, NOT_CHECKED = "ok", "warning", "wrong", "not checked"


class Finding(msgspec.Struct, frozen=True):
    """The result of a check; `status` is one of the four above, `text` is one line without secrets."""

    check: str
    status: str
    text: str


def ok(check: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, OK, text)


def warning(check: str, text: str) -> Finding:
    """Return a finding of something that works but needs attention."""
    return Finding(check, WARNING, text)


def wrong(check: str, text: str) -> Finding:
    """Return a finding of something that must be fixed; `text` says how."""
    return Finding(check, WRONG, text)


def not_checked(check: str, text: str) -> Finding:
    """Return a finding that a check does not apply or is impossible from here; `text` says why."""
    return Finding(check, NOT_CHECKED, text)
