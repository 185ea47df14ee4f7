"""What the command line says where an error speaks to programs: of headers, of arguments, of classes."""

import re

from stoplist_client.errors import (
    ApiError,
    DefaultGroupNotConfigured,
    InvalidClient,
    InvalidItem,
    InvalidToken,
    StoplistClientError,
)

# In place of the service's own text.
_BY_CLASS: dict[type[ApiError], str] = {
    DefaultGroupNotConfigured: "The organization has no default group: say --group, or --all-groups.",
    InvalidClient: (
        "The key is unknown here, its secret is wrong, or it was deactivated: "
        "ask whoever gave it to you, and log in again."
    ),
    InvalidToken: (
        "The service refuses the tokens that it gave just now: the key is being deactivated, or they were revoked. "
        "Try again in a moment."
    ),
}
_NAMES = {
    "base_url": "base address (--base-url)",
    "ca_file": "file of certificates (--ca-file)",
    "group_id": "group (--group)",
    "org_slug": "organization (--org)",
}
_NAME = re.compile(rf"\b((?:a|an|the|this) )?({'|'.join(_NAMES)})\b", re.IGNORECASE)
_CLASSES = (
    (re.compile(r", (name a folder .*), or use MemoryStore\(\)"), r", or \1"),
    (re.compile(r"KeyringStore needs"), "--keyring needs"),
    (re.compile(r"or use FileStore\(\)"), "or log in without --keyring"),
    (
        re.compile(r"This was about (\w+) of ([a-z0-9-]+); Mirror\.unfollow stops following it"),
        r"This was about \1 of \2; `stoplist-client sync --unfollow --org \2 --channel \1` stops following it",
    ),
    (
        re.compile(r"submit them again \(Mirror\.missing\) or settle them \(Mirror\.settle\) before you unfollow"),
        "`stoplist-client sync --submit-missing` submits them again, which is to be done first; "
        "where it takes them no more, --forget-missing gives them up",
    ),
)


def spoken(error: StoplistClientError) -> str:
    """What happened and what would be right, in the words of the command line; code, status and request id stay."""
    text = str(error)
    if isinstance(error, ApiError):
        text = text.replace(error.text, _of_the_service(error), 1)
    return in_words(text)


def in_words(text: str) -> str:
    """A text of this package with what is typed in place of what is programmed."""
    for pattern, words in _CLASSES:
        text = pattern.sub(words, text)
    return _NAME.sub(_in_words, text)


def _of_the_service(error: ApiError) -> str:
    if isinstance(error, InvalidItem) and error.item_errors:
        many = len(error.item_errors)
        which = "1 item of this batch" if many == 1 else f"{many:,} items of this batch"
        them = "it" if many == 1 else "them"
        return (
            f"{which} cannot be accepted, so nothing of the batch was stored: "
            f"correct {them}, or say --lenient to store the others."
        )
    return _BY_CLASS.get(type(error), error.text)


def _in_words(found: re.Match[str]) -> str:
    article, name = found[1] or "the ", found[2]
    words = f"{article}{_NAMES[name.lower()]}"
    return words[0].upper() + words[1:] if found.start() == 0 else words
