"""The secret key of a deployment: authenticates what it hands out to be brought back, such as cursors.

Source: docs/interface.md section D1, Settings.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from stoplist.errors import SettingsError
from stoplist.settings import Settings

FILE_NAME = "secret.key"


def secret_keys(settings: Settings) -> tuple[str, ...]:
    """The keys, the signing one first: those set, else the one in the data folder, which is made if it is not there."""
    if settings.secret_keys:
        return settings.secret_keys
    path = settings.data_dir / FILE_NAME
    try:
        key = _read_or_make(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise SettingsError(f"The secret key {path} cannot be read or made: {reason}.") from None
    if len(key) < 32:
        raise SettingsError(
            f"The secret key {path} is shorter than 32 characters: restore it from a backup, "
            "or delete the file to have a new one made (cursors given out before are then refused)."
        )
    return (key,)


def _read_or_make(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        _make(path)
    return path.read_text("utf-8").strip()


def _make(path: Path) -> None:
    """The file is there whole or not at all, also after a power cut."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    # Linked, not renamed: of two servers that start together, both go on with the key that was there first.
    with suppress(FileExistsError):
        os.link(partial, path)
    partial.unlink()
