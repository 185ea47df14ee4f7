"""Which profile a command works with: the one that was named, or what variables say, or the one by default."""

import os
import stat
import sys

import msgspec

from stoplist_client.cli.exit_status import Failed, WrongVariables
from stoplist_client.cli.profile import DEFAULT, NAME, Profile, profile_names, stored_if_any
from stoplist_client.secret import Secret

_KEY = ("BASE_URL", "CLIENT_ID", "CLIENT_SECRET")
_SECRET_FILE = "CLIENT_SECRET_FILE"


def load(name: str | None) -> Profile:
    """The profile that a command is to use, whose name is `name` if that was said on the command line.

    STOPLISTCLIENT_ORG, _GROUP and _CA_FILE stand in for what a profile says. Failed where there is none.
    """
    profile = load_if_any(name)
    if profile is None:
        raise Failed(
            "Not logged in: `stoplist-client login` stores a key; or set STOPLISTCLIENT_BASE_URL, "
            "STOPLISTCLIENT_CLIENT_ID and STOPLISTCLIENT_CLIENT_SECRET."
        )
    return profile


def load_if_any(name: str | None) -> Profile | None:
    """As `load`; None where nothing was said of any profile, and there is none by default."""
    key = None if name else _key_of_variables()
    if key and variable("PROFILE"):
        raise WrongVariables(
            "STOPLISTCLIENT_PROFILE names a profile, and STOPLISTCLIENT_CLIENT_ID a key: unset one of them."
        )
    profile = _of_variables(key) if key else stored_if_any(name or named_or_default())
    if profile is None and (name or variable("PROFILE")):
        raise Failed(f"There is no profile {name or variable('PROFILE')!r}: {_known()}.")
    return profile and _with_variables(profile)


def named_or_default() -> str:
    """The name of STOPLISTCLIENT_PROFILE, or `default`."""
    name = variable("PROFILE") or DEFAULT
    if NAME.fullmatch(name) is None:
        raise WrongVariables(
            "STOPLISTCLIENT_PROFILE is no name of a profile: those have letters, digits, dots, - and _."
        )
    return name


def variable(name: str) -> str | None:
    """The value of STOPLISTCLIENT_<name>; None where it is not set, or empty."""
    return os.environ.get(f"STOPLISTCLIENT_{name}") or None


def secret_in(path: str | os.PathLike[str]) -> Secret:
    """The secret that a file holds, without the white space around it. Failed where others may read it, too.

    A file of another user, or where nothing can be written, was put there by whoever runs this host or container: its
    mode is theirs to choose. A pipe, as /dev/stdin or of a shell's <(…), has none that counts.
    """
    try:
        with open(path, encoding="utf-8") as file:
            if _may_be_read_by_others(file.fileno()):
                raise Failed(f"{os.fspath(path)} holds a secret and others may read it: chmod 600 it.")
            text = file.read().strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(text.splitlines()) != 1:
        raise Failed(f"{os.fspath(path)} does not hold a secret: it must be the one line of that file.")
    return Secret(text)


def _may_be_read_by_others(descriptor: int) -> bool:
    """Whether this is a file of this user, who could mend its mode, and has not."""
    if sys.platform == "win32":
        return False
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != _this_user():
        return False
    return bool(found.st_mode & 0o077) and not os.fstatvfs(descriptor).f_flag & os.ST_RDONLY


def _this_user() -> int:
    return os.geteuid()


def _known() -> str:
    names = profile_names()
    return f"there is {', '.join(names)}" if names else "none is stored yet, `stoplist-client login` stores one"


def _key_of_variables() -> dict[str, str | Secret] | None:
    """Base address, id and secret, if the variables name them; naming some of them only is an error."""
    found: dict[str, str | Secret] = {name: value for name in _KEY if (value := variable(name))}
    if path := variable(_SECRET_FILE):
        if "CLIENT_SECRET" in found:
            raise WrongVariables("STOPLISTCLIENT_CLIENT_SECRET and STOPLISTCLIENT_CLIENT_SECRET_FILE are both set.")
        found["CLIENT_SECRET"] = secret_in(path)
    missing = [f"STOPLISTCLIENT_{name}" for name in _KEY if name not in found]
    if found and missing:
        # A secret must never go to another service than the one it was given for.
        raise WrongVariables(f"Of the variables that replace a profile {' and '.join(missing)} must be set too.")
    return found or None


def _of_variables(key: dict[str, str | Secret]) -> Profile:
    return Profile(
        name=None,
        base_url=str(key["BASE_URL"]),
        client_id=str(key["CLIENT_ID"]),
        client_secret=Secret(key["CLIENT_SECRET"]),
    )


def _with_variables(profile: Profile) -> Profile:
    org_slug, group_id, ca_file = variable("ORG"), variable("GROUP"), variable("CA_FILE")
    if org_slug and org_slug != profile.org_slug:
        profile = msgspec.structs.replace(profile, org_slug=org_slug, group_id=None)  # it was the other's group
    if group_id:
        profile = msgspec.structs.replace(profile, group_id=group_id)
    return msgspec.structs.replace(profile, ca_file=ca_file) if ca_file else profile
