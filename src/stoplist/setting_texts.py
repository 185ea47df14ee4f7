"""Reads the texts of settings: from the environment, the `.env` file, and the files that `…_FILE` variables name.

Source: docs/interface.md section D1, Settings.
"""

from collections.abc import Mapping
from pathlib import Path

from dotenv.parser import parse_stream

from stoplist.errors import SettingsError

PREFIX = "STOPLIST_"


def environment_texts(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables under names of ours."""
    return {name: text for name, text in environ.items() if name.startswith(PREFIX)}


def env_file_texts(path: Path) -> dict[str, str]:
    """Return the variables that a `.env` file sets under names of ours; nothing if there is no file."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            bindings = list(parse_stream(file))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path.name} cannot be read: {_reason(error)}") from None
    for binding in bindings:
        # dotenv_values() would skip such a line with a warning, so a key with a missing quote would not be set.
        if binding.error:
            raise SettingsError(f"{path.name} line {binding.original.line} must be NAME=value or a comment")
    return {binding.key: binding.value or "" for binding in bindings if binding.key and binding.key.startswith(PREFIX)}


def variables_set(environ: Mapping[str, str], *, env_file: Path) -> dict[str, str]:
    """Return the texts of the variables that are set, by name; raise SettingsError if the file is unreadable."""
    return {name: text for name, text in (env_file_texts(env_file) | environment_texts(environ)).items() if text}


def read_text(label: str, path: Path) -> str:
    """Return the content of a file that a variable names; SettingsError without the path, which may be a secret."""
    try:
        return path.read_bytes().decode()
    except (OSError, ValueError) as error:
        raise SettingsError(f"{label} must name a readable file: {_reason(error)}") from None


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or "not text in UTF-8"
