"""Error messages for the command line.

The SDK's messages name headers, parameters and classes; here they name the options and commands to use instead.
"""

import re

from stoplist_client.errors import (
    ApiError,
    DefaultGroupNotConfigured,
    InvalidClient,
    InvalidItem,
    InvalidToken,
    StoplistClientError,
)

# These replace the service's own text.
_TEXT_BY_CLASS: dict[type[ApiError], str] = {
    DefaultGroupNotConfigured: "The organization has no default group: add --group ID or --all-groups.",
    InvalidClient: (
        "The key is unknown to this service, its secret is wrong, or it was deactivated: "
        "ask for a working key, and log in again."
    ),
    InvalidToken: (
        "The service refuses the tokens that it has just issued: the key is being deactivated, or its tokens were "
        "revoked. Try again in a moment."
    ),
}
_OPTION_BY_PARAMETER = {
    "base_url": "base address (--base-url)",
    "ca_file": "certificate file (--ca-file)",
    "group_id": "group (--group)",
    "org_slug": "organization (--org)",
}
_PARAMETER = re.compile(rf"\b((?:a|an|the|this) )?({'|'.join(_OPTION_BY_PARAMETER)})\b", re.IGNORECASE)
_REPLACEMENTS = (
    (re.compile(r", (name a folder .*), or use MemoryStore\(\)"), r", or \1"),
    (re.compile(r"KeyringStore needs"), "--keyring needs"),
    (re.compile(r"or use FileStore\(\)"), "or log in without --keyring"),
    (
        re.compile(r"The refused feed is (\w+) of ([a-z0-9-]+); Mirror\.unfollow removes it"),
        r"The refused feed is \1 of \2; `stoplist-client sync --unfollow --org \2 --channel \1` removes it",
    ),
    (
        re.compile(r"submit them again \(Mirror\.missing\) or settle them \(Mirror\.settle\) before you unfollow"),
        "first run `stoplist-client sync --submit-missing`, which submits them again; "
        "if the service refuses them, --forget-missing gives them up",
    ),
)


def message_of(error: StoplistClientError) -> str:
    """Return the message of an error for the command line. Code, status and request id stay."""
    text = str(error)
    if isinstance(error, ApiError):
        text = text.replace(error.text, _api_error_text(error), 1)
    return for_command_line(text)


def for_command_line(text: str) -> str:
    """Return a message of the SDK with options and commands in place of parameters and classes."""
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return _PARAMETER.sub(_as_option, text)


def _api_error_text(error: ApiError) -> str:
    if isinstance(error, InvalidItem) and error.item_errors:
        count = len(error.item_errors)
        items = "1 item of this batch" if count == 1 else f"{count:,} items of this batch"
        them = "it" if count == 1 else "them"
        return (
            f"{items} cannot be accepted, so nothing of the batch was stored: "
            f"correct {them}, or add --lenient to store the others."
        )
    return _TEXT_BY_CLASS.get(type(error), error.text)


def _as_option(match: re.Match[str]) -> str:
    article, name = match[1] or "the ", match[2]
    option = f"{article}{_OPTION_BY_PARAMETER[name.lower()]}"
    return option[0].upper() + option[1:] if match.start() == 0 else option
