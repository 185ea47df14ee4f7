"""Profiles: which service, which key, and what is meant where nothing is said.

Each is one file of mode 0600 in the client's folder. With the keyring the secret is not in it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stoplist_client.cli.exit_status import Failed
from stoplist_client.cli.messages import spoken
from stoplist_client.errors import TokenStoreError
from stoplist_client.files.private_file import PrivateFile, default_folder
from stoplist_client.redacted import Redacted
from stoplist_client.secret import Secret
from stoplist_client.tokens.stores import name_of

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DEFAULT = "default"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a command works with. `name` is None where it comes from variables."""

    name: str | None
    base_url: str
    client_id: str
    client_secret: Secret | None
    """None: the keyring has it."""
    org_slug: str | None = None
    group_id: str | None = None
    ca_file: str | None = None

    @property
    def is_in_keyring(self) -> bool:
        """Whether secret and tokens are in the keyring, and not in files."""
        return self.client_secret is None

    @property
    def mirror(self) -> Path:
        """Where the mirror of this profile lies, if nothing else is said."""
        return default_folder() / f"mirror-{self.name or name_of(self.base_url, self.client_id)}.db"


class _Stored(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """The file of a profile."""

    base_url: str
    client_id: str
    client_secret: str | None
    org_slug: str | None = None
    group_id: str | None = None
    ca_file: str | None = None


def stored_if_any(name: str) -> Profile | None:
    """The profile of that name, as it is stored; None where there is none."""
    with _of_profiles():
        content = _file(name).read()
    if content is None:
        return None
    try:
        stored = msgspec.json.decode(content, type=_Stored)
    except (msgspec.DecodeError, UnicodeError):
        stored = None  # what was raised holds on to the content
    if stored is None:
        raise Failed(f"{_file(name).path} is not a profile any more: log in again.")
    return Profile(
        name=name,
        base_url=stored.base_url,
        client_id=stored.client_id,
        client_secret=None if stored.client_secret is None else Secret(stored.client_secret),
        org_slug=stored.org_slug,
        group_id=stored.group_id,
        ca_file=stored.ca_file,
    )


def store(name: str, profile: Profile) -> Path:
    """The profile is stored durably under this name; before, an earlier one is. Answers where."""
    secret = profile.client_secret
    stored = _Stored(
        base_url=profile.base_url,
        client_id=profile.client_id,
        client_secret=None if secret is None else secret.reveal(),
        org_slug=profile.org_slug,
        group_id=profile.group_id,
        ca_file=profile.ca_file,
    )
    file = _file(name)
    with _of_profiles():
        file.write(msgspec.json.format(msgspec.json.encode(stored)) + b"\n")
    return file.path


def remove(name: str) -> None:
    """There is no profile of that name."""
    with _of_profiles():
        _file(name).remove()


def profile_names() -> list[str]:
    """The stored profiles."""
    names = (
        path.name.removeprefix("profile-").removesuffix(".json") for path in default_folder().glob("profile-*.json")
    )
    return sorted(name for name in names if NAME.fullmatch(name))


def make_folder() -> None:
    """The folder of the client is there, for its owner alone."""
    folder = default_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def _of_profiles() -> Iterator[None]:
    """Where the file is trouble, Failed speaks of a profile, and not of tokens."""
    try:
        yield
    except TokenStoreError as error:
        text = spoken(error).replace(" holds tokens and others", " is for its owner alone, and others")
        raise Failed(f"The profile {text}") from None


def _file(name: str) -> PrivateFile:
    return PrivateFile(default_folder() / f"profile-{name}.json")
