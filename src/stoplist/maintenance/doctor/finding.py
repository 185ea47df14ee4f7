"""What a check found, and in which words: always what is there, and where it is wrong, what would be right."""

import msgspec

OK, WARNING, WRONG, NOT_CHECKED = "ok", "warning", "wrong", "not checked"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check; `status` is one of the four above, `text` one line without any secret."""

    check: str
    status: str
    text: str


def ok(check: str, text: str) -> Finding:
    """It is as it should be."""
    return Finding(check, OK, text)


def warning(check: str, text: str) -> Finding:
    """It works, and somebody should look at it."""
    return Finding(check, WARNING, text)


def wrong(check: str, text: str) -> Finding:
    """It must be put right; the text says how."""
    return Finding(check, WRONG, text)


def not_checked(check: str, text: str) -> Finding:
    """It could not be looked at from here, or does not apply; the text says why."""
    return Finding(check, NOT_CHECKED, text)
