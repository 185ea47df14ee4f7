"""Every setting of a deployment: one table with its parser, its valid values and its default.

A setting comes from a flag of `serve`, else from a variable `STOPLIST_<NAME>`, else from the `.env` file, else from the
table. Every value that is set must be valid, even if another one takes precedence. Errors never repeat a value: some
hold a password, and a password is easily pasted under the wrong name.
Source: docs/interface.md section D1.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import msgspec
from dotenv.parser import parse_stream

from stoplist.errors import SettingsError
from stoplist.setting_values import (
    _SECRET_KEY_MIN_CHARS,
    _UNPRINTABLE,
    POSTGRESQL_SCHEME,
    SQLITE_SCHEME,
    HintError,
    parse_base_url,
    parse_database_url,
    parse_host,
    parse_limits_url,
    parse_listen,
    parse_networks,
    parse_number,
    parse_path,
    parse_secret_keys,
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one deployment, each well formed; `check_serve` validates them together.

    A setting that is not set is None, or empty if it is a tuple. `base_url` has no trailing slash.
    """

    environment: str
    base_url: str
    host: str
    port: int
    data_dir: Path
    database_url: str
    database_pool: int
    database_prepared: bool
    limits_url: str | None
    tls_cert: Path | None
    tls_key: Path | None
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...]
    secret_keys: tuple[str, ...]
    workers: int
    drain_s: int
    metrics_listen: tuple[str, int] | None
    log_format: str

    def __repr__(self) -> str:
        # Anything that shows values, such as a failing assertion, would otherwise show keys and passwords.
        return f"Settings(environment={self.environment!r}, data_dir={str(self.data_dir)!r}, ...)"


def load(environ: Mapping[str, str], *, env_file: Path, flags: Mapping[str, str | None] | None = None) -> Settings:
    """Return the settings from these variables, this `.env` file (it may be absent) and these flags.

    `flags` are command-line texts by setting name (`PORT`); None means that the flag is absent. Raise SettingsError,
    which names what is wrong and what would be right. Reads files and changes nothing.
    """
    variables = {name: text for name, text in environ.items() if name.startswith(_PREFIX)}
    values = {name: setting.default for name, setting in _SETTINGS.items()}
    values |= _values(_env_file_texts(env_file), location=f" in {env_file.name}")
    values |= _values(variables, location="")
    values |= {name: parse(name, text) for name, text in (flags or {}).items() if text is not None}
    if values["BASE_URL"] is None:
        values["BASE_URL"] = f"https://localhost:{values['PORT']}".removesuffix(":443")
    if values["DATABASE_URL"] is None:
        values["DATABASE_URL"] = f"{SQLITE_SCHEME}{values['DATA_DIR'] / 'stoplist.db'}"
    return Settings(**{_FIELDS.get(name, name.lower()): value for name, value in values.items()})


def parse(name: str, text: str, *, label: str | None = None) -> Any:
    """Return the value of `text` for the setting `name`; raise SettingsError, which says what would be right.

    `label` is the name used in the error, by default the flag (`--data-dir`).
    """
    setting = _SETTINGS[name]
    requirement = f"{label or '--' + name.lower().replace('_', '-')} must be {setting.expected}"
    if _UNPRINTABLE.search(text):
        raise SettingsError(f"{requirement}; it holds a control character or is not in UTF-8")
    try:
        return setting.parse(text)
    except HintError as hint:
        raise SettingsError(f"{requirement}; {hint}") from None
    except (ValueError, LookupError):
        raise SettingsError(requirement) from None


def check_serve(settings: Settings) -> None:
    """Raise SettingsError if no server can run with these settings; other commands may still run.

    Reads the files of `TLS_CERT` and `TLS_KEY`, to check that they are readable.
    """
    for text in serve_errors(settings):
        raise SettingsError(text)


def serve_errors(settings: Settings) -> list[str]:
    """Return every error for which no server can run with these settings, in the words of `check_serve`."""
    found = [text for is_refused, text in _SERVE_REFUSALS if is_refused(settings)]
    for variable, path in (("STOPLIST_TLS_CERT", settings.tls_cert), ("STOPLIST_TLS_KEY", settings.tls_key)):
        try:
            if path is not None:
                _read_text(variable, path)
        except SettingsError as error:
            found.append(error.text)
    return found


def find_errors(environ: Mapping[str, str], *, env_file: Path) -> list[str]:
    """Return every error that `load` would raise for these variables and this file, in the same words."""
    try:
        file_texts = _env_file_texts(env_file)
    except SettingsError as error:
        return [error.text]
    variables = {name: text for name, text in environ.items() if name.startswith(_PREFIX)}
    found = []
    for texts, location in ((variables, ""), (file_texts, f" in {env_file.name}")):
        for group in _group_by_setting(texts):
            try:
                _values(group, location=location)
            except SettingsError as error:
                found.append(error.text)
    return found


def variables_set(environ: Mapping[str, str], *, env_file: Path) -> dict[str, str]:
    """Return the texts of the variables that are set, by name; raise SettingsError if the file is unreadable."""
    variables = {name: text for name, text in environ.items() if name.startswith(_PREFIX)}
    return {name: text for name, text in (_env_file_texts(env_file) | variables).items() if text}


_PREFIX = "STOPLIST_"

_SWITCH = {"on": True, "true": True, "off": False, "false": False}


class _Setting(msgspec.Struct, frozen=True):
    """The parser of a setting, its valid values in words, its default, and whether a file may hold it."""

    parse: Callable[[str], Any]
    expected: str
    default: Any = None
    may_be_in_file: bool = False


def _one_of(*words: str) -> _Setting:
    return _Setting({word: word for word in words}.__getitem__, " or ".join(words), words[0])


def _whole_number(low: int, high: int, *, default: int) -> _Setting:
    return _Setting(partial(parse_number, low, high), f"a whole number from {low} to {high}", default)


_SETTINGS: dict[str, _Setting] = {
    "ENVIRONMENT": _one_of("development", "production"),
    "BASE_URL": _Setting(parse_base_url, "https://host or https://host:port and nothing after it"),
    "HOST": _Setting(parse_host, "an IP address (IPv6 without brackets) or a host name", "127.0.0.1"),
    "PORT": _whole_number(1, 65535, default=8443),
    "DATA_DIR": _Setting(parse_path, "the path of a folder", Path("data")),
    "DATABASE_URL": _Setting(parse_database_url, "sqlite:///PATH or postgresql://…", may_be_in_file=True),
    "DATABASE_POOL": _whole_number(2, 1000, default=20),
    "DATABASE_PREPARED": _Setting(_SWITCH.__getitem__, "on or off", default=True),
    "LIMITS_URL": _Setting(parse_limits_url, "memory: or redis://…, rediss://… or unix://…", may_be_in_file=True),
    "TLS_CERT": _Setting(parse_path, "the path of a certificate chain in PEM"),
    "TLS_KEY": _Setting(parse_path, "the path of a private key in PEM"),
    "TRUSTED_PROXIES": _Setting(parse_networks, "networks like 10.0.0.0/8 or addresses, with commas between", ()),
    "SECRET_KEY": _Setting(
        parse_secret_keys,
        f"keys of at least {_SECRET_KEY_MIN_CHARS} characters each, with commas between",
        default=(),
        may_be_in_file=True,
    ),
    "WORKERS": _whole_number(1, 1000, default=1),
    "DRAIN_S": _whole_number(0, 3600, default=10),
    "METRICS_LISTEN": _Setting(parse_listen, "HOST:PORT (an IPv6 address in brackets)"),
    "LOG_FORMAT": _one_of("console", "json"),
}
_FIELDS = {"SECRET_KEY": "secret_keys"}

SETTING_NAMES = tuple(_SETTINGS)
"""The name of every setting, without the prefix of its variable."""

VARIABLE_NAMES = tuple(
    f"{_PREFIX}{name}{suffix}"
    for name, setting in _SETTINGS.items()
    for suffix in ("", "_FILE")[: 1 + setting.may_be_in_file]
)
"""Every variable that is read; any other variable that begins with `STOPLIST_` is an error."""

_SERVE_REFUSALS: tuple[tuple[Callable[[Settings], bool], str], ...] = (
    (
        lambda it: it.workers > 1 and not _is_on_postgresql(it),
        "STOPLIST_WORKERS or --workers must be 1 on SQLite, which only one process can serve. For more, move to"
        " PostgreSQL (`stoplist copy`) and set STOPLIST_LIMITS_URL to a Valkey or Redis server",
    ),
    (
        lambda it: it.workers > 1 and it.limits_url in (None, "memory:"),
        "STOPLIST_LIMITS_URL must name a Valkey or Redis server (redis://…) if STOPLIST_WORKERS or --workers is"
        " above 1: the processes must count requests together",
    ),
    (
        lambda it: _is_on_postgresql(it) and it.limits_url is None,
        "STOPLIST_LIMITS_URL must be set with PostgreSQL: redis://… for the Valkey or Redis server at which all"
        " processes count, memory: if this is the only process",
    ),
    (
        lambda it: _is_on_postgresql(it) and not it.secret_keys,
        "STOPLIST_SECRET_KEY or STOPLIST_SECRET_KEY_FILE must be set with PostgreSQL, the same for every"
        f" process: at least {_SECRET_KEY_MIN_CHARS} random characters",
    ),
    (
        lambda it: (it.tls_cert is None) != (it.tls_key is None),
        "STOPLIST_TLS_CERT and STOPLIST_TLS_KEY go together: set both or neither",
    ),
    (
        lambda it: it.environment == "production" and it.tls_cert is None and not it.trusted_proxies,
        "STOPLIST_TLS_CERT and STOPLIST_TLS_KEY must be set in production, or STOPLIST_TRUSTED_PROXIES if"
        " proxies terminate TLS",
    ),
)


def _is_on_postgresql(settings: Settings) -> bool:
    return settings.database_url.startswith(POSTGRESQL_SCHEME)


def _group_by_setting(texts: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the same variables, grouped by setting."""
    settings: dict[str, dict[str, str]] = {}
    for variable, text in texts.items():
        name = variable.removesuffix("_FILE") if variable in VARIABLE_NAMES else variable
        settings.setdefault(name, {})[variable] = text
    return list(settings.values())


def _env_file_texts(path: Path) -> dict[str, str]:
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
    return {binding.key: binding.value or "" for binding in bindings if binding.key and binding.key.startswith(_PREFIX)}


def _values(texts: Mapping[str, str], *, location: str) -> dict[str, Any]:
    """Return the values by setting from the variables of one location; an empty variable counts as unset."""
    unknown = next((variable for variable in texts if variable not in VARIABLE_NAMES), None)
    if unknown is not None:
        nearest = get_close_matches(unknown[:80], VARIABLE_NAMES, n=1, cutoff=0)[0]
        shown = unknown.encode("ascii", "backslashreplace").decode()[:80]
        raise SettingsError(f"{shown}{location} is not a setting; the closest name is {nearest}")
    return {
        name: parse(name, _text(variable, texts, location=location), label=f"{variable}{location}")
        for name in _SETTINGS
        if (variable := _variable(name, texts, location=location))
    }


def _variable(name: str, texts: Mapping[str, str], *, location: str) -> str | None:
    """Return the variable that sets this setting, if any."""
    variables = [variable for variable in (f"{_PREFIX}{name}", f"{_PREFIX}{name}_FILE") if texts.get(variable)]
    if len(variables) > 1:
        raise SettingsError(f"{' and '.join(variables)} are both set{location}: set one of them")
    return variables[0] if variables else None


def _text(variable: str, texts: Mapping[str, str], *, location: str) -> str:
    """Return the value of a variable, or the content of the file that it names without one final newline."""
    if not variable.endswith("_FILE"):
        return texts[variable]
    return _read_text(f"{variable}{location}", Path(texts[variable])).removesuffix("\n").removesuffix("\r")


def _read_text(label: str, path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, ValueError) as error:
        # The path is not repeated: it may be the secret itself.
        raise SettingsError(f"{label} must name a readable file: {_reason(error)}") from None


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or "not text in UTF-8"
