"""Profiles: a service, a key, and the defaults for its commands.

A profile is one file of mode 0600 in the client's folder. With the keyring, the secret is not in that file.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stoplist_client.cli.exit_status import Failed
from stoplist_client.cli.messages import message_of
from stoplist_client.errors import TokenStoreError
from stoplist_client.files.folder_error import folder_error
from stoplist_client.files.private_file import FOLDER_VARIABLE, PrivateFile, default_folder
from stoplist_client.redacted import Redacted
from stoplist_client.secret import Secret
from stoplist_client.tokens.stores import key_name

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DEFAULT = "default"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A service, a key and defaults. `name` is None if they come from environment variables."""

    name: str | None
    base_url: str
    client_id: str
    client_secret: Secret | None
    """None if the secret is in the keyring."""
    org_slug: str | None = None
    group_id: str | None = None
    ca_file: str | None = None

    @property
    def is_in_keyring(self) -> bool:
        """Return whether secret and tokens are kept in the keyring instead of in files."""
        return self.client_secret is None

    @property
    def mirror(self) -> Path:
        """Return the default path of this profile's mirror."""
        return default_folder() / f"mirror-{self.name or key_name(self.base_url, self.client_id)}.db"


class _StoredProfile(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """The content of a profile's file."""

    base_url: str
    client_id: str
    client_secret: str | None
    org_slug: str | None = None
    group_id: str | None = None
    ca_file: str | None = None


def find_profile(name: str) -> Profile | None:
    """Return the stored profile of this name, or None."""
    with _profile_errors():
        content = _file(name).read()
    if content is None:
        return None
    try:
        stored = msgspec.json.decode(content, type=_StoredProfile)
    except (msgspec.DecodeError, UnicodeError):
        stored = None  # raised below, outside the handler: this exception holds the content, with the secret
    if stored is None:
        raise Failed(f"{_file(name).path} is damaged: log in again.")
    return Profile(
        name=name,
        base_url=stored.base_url,
        client_id=stored.client_id,
        client_secret=None if stored.client_secret is None else Secret(stored.client_secret),
        org_slug=stored.org_slug,
        group_id=stored.group_id,
        ca_file=stored.ca_file,
    )


def save_profile(name: str, profile: Profile) -> Path:
    """Store a profile durably and atomically under this name, and return the path of its file."""
    secret = profile.client_secret
    stored = _StoredProfile(
        base_url=profile.base_url,
        client_id=profile.client_id,
        client_secret=None if secret is None else secret.reveal(),
        org_slug=profile.org_slug,
        group_id=profile.group_id,
        ca_file=profile.ca_file,
    )
    file = _file(name)
    with _profile_errors():
        file.write(msgspec.json.format(msgspec.json.encode(stored)) + b"\n")
    return file.path


def remove_profile(name: str) -> None:
    """Remove the profile of this name, if there is one."""
    with _profile_errors():
        _file(name).remove()


def profile_names() -> list[str]:
    """Return the names of the stored profiles, sorted."""
    names = (
        path.name.removeprefix("profile-").removesuffix(".json") for path in default_folder().glob("profile-*.json")
    )
    return sorted(name for name in names if NAME.fullmatch(name))


def make_folder() -> None:
    """Create the client's folder with mode 0700, unless it exists."""
    folder = default_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        reason = folder_error(folder, error)
        raise Failed(
            f"The folder {folder} cannot be created: {reason}. Name another one with {FOLDER_VARIABLE}."
        ) from None


@contextmanager
def _profile_errors() -> Iterator[None]:
    """Raise Failed with a message about a profile in place of TokenStoreError, whose message is about tokens."""
    try:
        yield
    except TokenStoreError as error:
        text = message_of(error).replace(" contains tokens, but", " contains a secret, but")
        raise Failed(f"The profile {text}") from None


def _file(name: str) -> PrivateFile:
    return PrivateFile(default_folder() / f"profile-{name}.json")
