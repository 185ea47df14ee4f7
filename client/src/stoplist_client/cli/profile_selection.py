"""Selects the profile of a command: the one named, the one in the environment variables, or the default one."""

import os
import stat
import sys

import msgspec

from stoplist_client.cli.exit_status import Failed, WrongVariables
from stoplist_client.cli.profile import DEFAULT, NAME, Profile, find_profile, profile_names
from stoplist_client.secret import Secret

_KEY = ("BASE_URL", "CLIENT_ID", "CLIENT_SECRET")
_SECRET_FILE = "CLIENT_SECRET_FILE"


def load_profile(name: str | None) -> Profile:
    """Return the profile that a command uses; `name` is that of --profile, if given.

    STOPLISTCLIENT_ORG, _GROUP and _CA_FILE override the profile. Raises Failed if there is no profile.
    """
    profile = load_profile_if_any(name)
    if profile is None:
        raise Failed(
            "Not logged in: run `stoplist-client login`, or set STOPLISTCLIENT_BASE_URL, STOPLISTCLIENT_CLIENT_ID "
            "and STOPLISTCLIENT_CLIENT_SECRET."
        )
    return profile


def load_profile_if_any(name: str | None) -> Profile | None:
    """Return the profile as `load_profile` does, or None if none was named and there is no default one."""
    key = None if name else _key_from_variables()
    if key and variable("PROFILE"):
        raise WrongVariables(
            "STOPLISTCLIENT_PROFILE names a profile and STOPLISTCLIENT_CLIENT_ID a key: unset one of them."
        )
    profile = _profile_from_variables(key) if key else find_profile(name or default_profile_name())
    if profile is None and (name or variable("PROFILE")):
        raise Failed(f"There is no profile {name or variable('PROFILE')!r}: {_available_profiles()}.")
    return profile and _with_overrides(profile)


def default_profile_name() -> str:
    """Return the name in STOPLISTCLIENT_PROFILE, or `default`."""
    name = variable("PROFILE") or DEFAULT
    if NAME.fullmatch(name) is None:
        raise WrongVariables("STOPLISTCLIENT_PROFILE is not a profile name: use letters, digits, dots, - and _ only.")
    return name


def variable(name: str) -> str | None:
    """Return the value of STOPLISTCLIENT_<name>, or None if it is unset or empty."""
    return os.environ.get(f"STOPLISTCLIENT_{name}") or None


def read_secret_file(path: str | os.PathLike[str]) -> Secret:
    """Return the secret in a file, without surrounding white space. Raises Failed if others may read the file.

    The mode is not checked for a file of another user or on a read-only file system, since the operator of the host or
    container chose it, nor for a pipe, such as /dev/stdin or a shell's <(…).
    """
    try:
        with open(path, encoding="utf-8") as file:
            if _may_be_read_by_others(file.fileno()):
                raise Failed(f"{os.fspath(path)} contains a secret, but other users may read it: chmod 600 it.")
            text = file.read().strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(text.splitlines()) != 1:
        raise Failed(f"{os.fspath(path)} does not contain a secret: it must be the only line of that file.")
    return Secret(text)


def _may_be_read_by_others(descriptor: int) -> bool:
    """Return whether others may read this file of this user, and this user could change its mode."""
    if sys.platform == "win32":
        return False
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != _this_user():
        return False
    return bool(found.st_mode & 0o077) and not os.fstatvfs(descriptor).f_flag & os.ST_RDONLY


def _this_user() -> int:
    return os.geteuid()


def _available_profiles() -> str:
    names = profile_names()
    return f"stored are {', '.join(names)}" if names else "none is stored yet, `stoplist-client login` stores one"


def _key_from_variables() -> dict[str, str | Secret] | None:
    """Return base address, id and secret if the variables set them. Raises WrongVariables if only some are set."""
    found: dict[str, str | Secret] = {name: value for name in _KEY if (value := variable(name))}
    if path := variable(_SECRET_FILE):
        if "CLIENT_SECRET" in found:
            raise WrongVariables(
                "STOPLISTCLIENT_CLIENT_SECRET and STOPLISTCLIENT_CLIENT_SECRET_FILE are both set: unset one of them."
            )
        found["CLIENT_SECRET"] = read_secret_file(path)
    missing = [f"STOPLISTCLIENT_{name}" for name in _KEY if name not in found]
    if found and missing:
        # A secret must never go to another service than the one that issued it, so nothing is taken from a profile.
        raise WrongVariables(f"To use a key from variables, also set {' and '.join(missing)}.")
    return found or None


def _profile_from_variables(key: dict[str, str | Secret]) -> Profile:
    return Profile(
        name=None,
        base_url=str(key["BASE_URL"]),
        client_id=str(key["CLIENT_ID"]),
        client_secret=Secret(key["CLIENT_SECRET"]),
    )


def _with_overrides(profile: Profile) -> Profile:
    org_slug, group_id, ca_file = variable("ORG"), variable("GROUP"), variable("CA_FILE")
    if org_slug and org_slug != profile.org_slug:
        # The group of the profile belongs to the organization of the profile.
        profile = msgspec.structs.replace(profile, org_slug=org_slug, group_id=None)
    if group_id:
        profile = msgspec.structs.replace(profile, group_id=group_id)
    return msgspec.structs.replace(profile, ca_file=ca_file) if ca_file else profile
