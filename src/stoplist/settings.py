"""Every setting of a deployment, read and validated by the table in setting_table.py.

A setting comes from a flag of `serve`, else from a variable `STOPLIST_<NAME>`, else from the `.env` file, else from the
table. Every value that is set must be valid, even if another one takes precedence. One error names all that are wrong.
It repeats their values, but not those of the settings that hold a password or a key.
Source: docs/interface.md section D1.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stoplist.errors import SettingsError
from stoplist.setting_table import FIELDS, SETTINGS, VARIABLE_NAMES
from stoplist.setting_texts import PREFIX, env_file_texts, environment_texts, read_text
from stoplist.setting_values import SQLITE_SCHEME, UNPRINTABLE, HintError, SmtpServer

_MAX_SHOWN_CHARS = 60


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one deployment, each well formed; serve_requirements.py validates them together.

    A setting that is not set is None, or empty if it is a tuple. `base_url` has no trailing slash; if it is not set, it
    leads to localhost; `links_base_url` is then the same.
    """

    environment: str
    base_url: str
    is_base_url_set: bool
    links_base_url: str
    host: str
    port: int
    data_dir: Path
    database_url: str
    feeds_url: str | None
    database_pool: int
    database_prepared: bool
    limits_url: str | None
    tls_cert: Path | None
    tls_key: Path | None
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...]
    secret_keys: tuple[str, ...]
    refresh_chain_days: int
    require_two_step: str
    notice_url: str | None
    notice_secrets: tuple[bytes, ...]
    notice_allow_private: bool
    smtp_server: SmtpServer | None
    import_max_mb: int
    propagation_hours: int
    history_days: int
    audit_days: int
    workers: int
    drain_s: int
    connections: int
    connections_per_source: int
    metrics_listen: tuple[str, int] | None
    log_format: str

    def __repr__(self) -> str:
        # Anything that shows values, such as a failing assertion, would otherwise show keys and passwords.
        return f"Settings(environment={self.environment!r}, data_dir={str(self.data_dir)!r}, ...)"


class Reading(NamedTuple):
    """Settings as they were read, with the defaults of malformed ones; all errors; the malformed settings' names."""

    settings: Settings
    errors: list[str]
    malformed: frozenset[str]


def load(environ: Mapping[str, str], *, env_file: Path, flags: Mapping[str, str | None] | None = None) -> Settings:
    """Return the settings from these variables, this `.env` file (it may be absent) and these flags.

    `flags` are command-line texts by setting name (`PORT`); None means that the flag is absent. Raise one
    SettingsError, which names everything that is wrong and what would be right. Reads files and changes nothing.
    """
    reading = read(environ, env_file=env_file, flags=flags)
    refuse(reading.errors)
    return reading.settings


def read(environ: Mapping[str, str], *, env_file: Path, flags: Mapping[str, str | None] | None = None) -> Reading:
    """Return the same settings, and the errors instead of raising them."""
    errors = _Errors()
    file_texts: dict[str, str] = {}
    with errors.collected(None):
        file_texts = env_file_texts(env_file)
    values = {name: setting.default for name, setting in SETTINGS.items()}
    values |= _values(file_texts, errors, location=f" in {env_file.name}")
    values |= _values(environment_texts(environ), errors, location="")
    for name, text in (flags or {}).items():
        if text is not None:
            with errors.collected(name):
                values[name] = parse(name, text)
    return Reading(_settings(values), errors.texts, frozenset(errors.malformed))


def parse(name: str, text: str, *, label: str | None = None) -> Any:
    """Return the value of `text` for the setting `name`; raise SettingsError, which says what would be right.

    `label` is the name used in the error, by default the flag (`--data-dir`).
    """
    setting = SETTINGS[name]
    given = "" if setting.is_secret or _may_be_secret(text) else f", not {_shown(text)}"
    requirement = f"{label or '--' + name.lower().replace('_', '-')} must be {setting.expected}{given}"
    if UNPRINTABLE.search(text):
        raise SettingsError(f"{requirement}; it holds a control character or is not in UTF-8")
    try:
        return setting.parse(text)
    except HintError as hint:
        raise SettingsError(f"{requirement}; {hint}") from None
    except (ValueError, LookupError):
        raise SettingsError(requirement) from None


def is_valid(name: str, text: str) -> bool:
    """Return whether `text` is well formed for the setting `name`."""
    try:
        parse(name, text)
    except SettingsError:
        return False
    return True


def refuse(errors: Sequence[str]) -> None:
    """Raise one SettingsError that lists these errors, if there are any."""
    if len(errors) > 1:
        raise SettingsError("\n  ".join((f"{len(errors)} settings are wrong:", *errors)))
    for text in errors:
        raise SettingsError(text)


class _Errors:
    """Collects errors, and the names of the settings that they concern."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.malformed: set[str] = set()

    @contextmanager
    def collected(self, name: str | None) -> Iterator[None]:
        """Collect a SettingsError that is raised within this context about the setting `name`."""
        try:
            yield
        except SettingsError as error:
            self.texts.append(error.text)
            self.malformed |= {name} if name else set()


def _settings(values: dict[str, Any]) -> Settings:
    is_base_url_set = values["BASE_URL"] is not None
    if not is_base_url_set:
        values["BASE_URL"] = f"https://localhost:{values['PORT']}".removesuffix(":443")
    if values["LINKS_BASE_URL"] is None:
        values["LINKS_BASE_URL"] = values["BASE_URL"]
    if values["DATABASE_URL"] is None:
        values["DATABASE_URL"] = f"{SQLITE_SCHEME}{values['DATA_DIR'] / 'stoplist.db'}"
    fields = {FIELDS.get(name, name.lower()): value for name, value in values.items()}
    return Settings(**fields, is_base_url_set=is_base_url_set)


def _values(texts: Mapping[str, str], errors: _Errors, *, location: str) -> dict[str, Any]:
    """Return the values by setting from the variables of one location; an empty variable counts as unset."""
    for variable in texts:
        with errors.collected(None):
            _require_known(variable, location)
    values = {}
    for name in SETTINGS:
        with errors.collected(name):
            set_variable = _variable(name, texts, location=location)
            if set_variable:
                values[name] = parse(
                    name, _text(set_variable, texts, location=location), label=f"{set_variable}{location}"
                )
    return values


def _require_known(variable: str, location: str) -> None:
    if variable in VARIABLE_NAMES:
        return
    nearest = get_close_matches(variable[:80], VARIABLE_NAMES, n=1, cutoff=0)[0]
    shown = variable.encode("ascii", "backslashreplace").decode()[:80]
    raise SettingsError(f"{shown}{location} is not a setting; the closest name is {nearest}")


def _variable(name: str, texts: Mapping[str, str], *, location: str) -> str | None:
    """Return the variable that sets this setting, if any."""
    forms = (f"{PREFIX}{name}", f"{PREFIX}{name}_FILE")
    variables = [variable for variable in forms if variable in VARIABLE_NAMES and texts.get(variable)]
    if len(variables) > 1:
        raise SettingsError(f"{' and '.join(variables)} are both set{location}: set one of them")
    return variables[0] if variables else None


def _text(variable: str, texts: Mapping[str, str], *, location: str) -> str:
    """Return the value of a variable, or the content of the file that it names without one final newline."""
    if not variable.endswith("_FILE"):
        return texts[variable]
    return read_text(f"{variable}{location}", Path(texts[variable])).removesuffix("\n").removesuffix("\r")


def _may_be_secret(text: str) -> bool:
    """Return whether a text looks like a URL with a password, one of our secrets, or a key, under the wrong name."""
    return any(mark in text for mark in ("@", "svc_", "-----BEGIN"))


def _shown(text: str) -> str:
    """Return a value as an error shows it: quoted, in one printable line, of bounded length."""
    return repr(text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…")
