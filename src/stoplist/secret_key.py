"""The secret key of a deployment: authenticates texts that clients send back, such as cursors.

Source: docs/interface.md section D1, Settings.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from stoplist.errors import SettingsError
from stoplist.folders import folder_error
from stoplist.settings import Settings

FILE_NAME = "secret.key"
MIN_CHARS = 32


def secret_keys(settings: Settings) -> tuple[str, ...]:
    """Return the keys, the signing key first: the configured ones, or the one in the data folder.

    The key in the data folder is created if it does not exist.
    """
    if settings.secret_keys:
        return settings.secret_keys
    path = settings.data_dir / FILE_NAME
    try:
        key = _read_or_create(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = folder_error(path.parent, error) if isinstance(error, OSError) else "it is not text in UTF-8"
        raise SettingsError(f"The secret key {path} cannot be read or created: {reason}.") from None
    if len(key) < MIN_CHARS:
        raise SettingsError(
            f"The secret key {path} is shorter than {MIN_CHARS} characters: restore it from a backup, "
            "or delete the file so that a new one is created (cursors issued before are then refused)."
        )
    return (key,)


def existing_secret_keys(settings: Settings) -> tuple[str, ...]:
    """Return the keys as `secret_keys` does, but create none: () if there is no readable key."""
    if settings.secret_keys:
        return settings.secret_keys
    try:
        key = (settings.data_dir / FILE_NAME).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ()
    return (key,) if len(key) >= MIN_CHARS else ()


def is_key_missing(settings: Settings) -> bool:
    """Return whether no key is configured and the data folder has none, so that a start would create one."""
    return not settings.secret_keys and not (settings.data_dir / FILE_NAME).exists()


def _read_or_create(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        _create(path)
    return path.read_text("utf-8").strip()


def _create(path: Path) -> None:
    """Create the file atomically, so that after a power failure it is complete or absent."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    # Linked, not renamed: two servers that start together both use the key that was there first.
    with suppress(FileExistsError):
        os.link(partial, path)
    partial.unlink()
