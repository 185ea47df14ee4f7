"""Every setting of a deployment: one table says how each is read, what is right, and what holds otherwise.

A setting comes from a flag of `serve`, else from a variable `STOPLIST_<NAME>`, else from the `.env` file,
else from the table. What is set anywhere must be right, also where something else wins over it. Errors never
repeat a value: some carry a password, and a password is soon pasted under the wrong name too.
Source: docs/interface.md section D1.
"""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface
from pathlib import Path
from typing import Any

import msgspec
from dotenv.parser import parse_stream

from stoplist.errors import SettingsError


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one deployment, each well formed; `check_serve` looks at how they go together.

    Not set is None, or empty where it is a tuple. `base_url` has no trailing slash.
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
        # Whatever shows values, a failing assertion say, would else show keys and passwords.
        return f"Settings(environment={self.environment!r}, data_dir={str(self.data_dir)!r}, ...)"


def load(environ: Mapping[str, str], *, env_file: Path, flags: Mapping[str, str | None] | None = None) -> Settings:
    """The settings that these variables, this `.env` file (it may be absent) and these flags make.

    `flags` are texts of the command line by setting name (`PORT`); None means not given. Raises
    SettingsError, which names what is wrong and says what would be right. Reads files, changes nothing.
    """
    variables = {name: text for name, text in environ.items() if name.startswith(_PREFIX)}
    values = {name: setting.default for name, setting in _TABLE.items()}
    values |= _values(_env_file_texts(env_file), found_in=f" in {env_file.name}")
    values |= _values(variables, found_in="")
    values |= {name: parse(name, text) for name, text in (flags or {}).items() if text is not None}
    if values["BASE_URL"] is None:
        values["BASE_URL"] = f"https://localhost:{values['PORT']}".removesuffix(":443")
    if values["DATABASE_URL"] is None:
        values["DATABASE_URL"] = f"{_SQLITE}{values['DATA_DIR'] / 'stoplist.db'}"
    return Settings(**{_FIELDS.get(name, name.lower()): value for name, value in values.items()})


def parse(name: str, text: str, *, label: str | None = None) -> Any:
    """The value that `text` writes for the setting `name`; SettingsError says what would be right.

    `label` is what the error calls it, by default the flag of that name (`--data-dir`).
    """
    setting = _TABLE[name]
    claim = f"{label or '--' + name.lower().replace('_', '-')} must be {setting.wanted}"
    if _UNPRINTABLE.search(text):
        raise SettingsError(f"{claim}; it holds a control character or is not in UTF-8")
    try:
        return setting.parse(text)
    except _HintError as hint:
        raise SettingsError(f"{claim}; {hint}") from None
    except (ValueError, LookupError):
        raise SettingsError(claim) from None


def check_serve(settings: Settings) -> None:
    """Raises SettingsError when no server can run with these settings (other commands can).

    Reads the files of `TLS_CERT` and `TLS_KEY`, to see that they can be read.
    """
    for text in serve_errors(settings):
        raise SettingsError(text)


def serve_errors(settings: Settings) -> list[str]:
    """Every reason for which no server can run with these settings, as `check_serve` would say it."""
    found = [text for is_refused, text in _SERVE_REFUSALS if is_refused(settings)]
    for variable, path in (("STOPLIST_TLS_CERT", settings.tls_cert), ("STOPLIST_TLS_KEY", settings.tls_key)):
        try:
            if path is not None:
                _content(variable, path)
        except SettingsError as error:
            found.append(error.text)
    return found


def find_errors(environ: Mapping[str, str], *, env_file: Path) -> list[str]:
    """Everything that `load` would refuse in variables and file, one after the other, in its words."""
    try:
        of_file = _env_file_texts(env_file)
    except SettingsError as error:
        return [error.text]
    variables = {name: text for name, text in environ.items() if name.startswith(_PREFIX)}
    found = []
    for texts, found_in in ((variables, ""), (of_file, f" in {env_file.name}")):
        for of_one in _by_setting(texts):
            try:
                _values(of_one, found_in=found_in)
            except SettingsError as error:
                found.append(error.text)
    return found


def variables_set(environ: Mapping[str, str], *, env_file: Path) -> dict[str, str]:
    """The texts of the variables that are set somewhere, by name; SettingsError where the file cannot be read."""
    variables = {name: text for name, text in environ.items() if name.startswith(_PREFIX)}
    return {name: text for name, text in (_env_file_texts(env_file) | variables).items() if text}


_PREFIX = "STOPLIST_"
_SQLITE = "sqlite:///"
_POSTGRESQL = "postgresql://"
_SECRET_KEY_MIN_CHARS = 32

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_DIGITS = re.compile(r"[0-9]{1,9}")
# A name whose last label begins with a digit is an address with a slip in it.
_HOST_NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::([0-9]+))?")
_CIDR = re.compile(r"[0-9A-Fa-f:.]+(?:/[0-9]{1,3})?")
_DATABASE_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:,\[\]]*)(?::[0-9]{1,5})?"
_POSTGRESQL_URL = re.compile(
    rf"{_POSTGRESQL}(?=.)(?:[^/?#]*@)?{_DATABASE_HOST}(?:,{_DATABASE_HOST})*(?:/[^?#@]*)?(?:\?[^#]*)?"
)
_SHARED_LIMITS_URL = re.compile(r"(?:rediss?|unix)://.+")
_SWITCH = {"on": True, "true": True, "off": False, "false": False}


class _HintError(ValueError):
    """What is wrong with this very value, in words that do not repeat a secret."""


class _Setting(msgspec.Struct, frozen=True):
    """How a setting is read, what is right, its value when not set, and whether a file may hold it."""

    parse: Callable[[str], Any]
    wanted: str
    default: Any = None
    may_be_in_file: bool = False


def _one_of(*words: str) -> _Setting:
    return _Setting({word: word for word in words}.__getitem__, " or ".join(words), words[0])


def _whole_number(low: int, high: int, *, default: int) -> _Setting:
    return _Setting(partial(_number, low, high), f"a whole number from {low} to {high}", default)


def _number(low: int, high: int, text: str) -> int:
    # int() alone would also take signs, spaces, underscores and the digits of other alphabets.
    if not _DIGITS.fullmatch(text) or not low <= int(text) <= high:
        raise ValueError
    return int(text)


def _path(text: str) -> Path:
    if not text:
        raise ValueError
    return Path(text)


def _host(text: str) -> str:
    """An address in its usual spelling, or a host name in lower case."""
    try:
        return str(ip_address(text))
    except ValueError:
        if len(text) > 253 or not _HOST_NAME.fullmatch(text.lower()):
            raise
        return text.lower()


def _authority(text: str) -> tuple[str, int | None]:
    """Host and port of `host[:port]`, the brackets of an IPv6 address taken off."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise ValueError
    bracketed, bare, port = match.groups()
    host = str(IPv6Address(bracketed)) if bracketed else _host(bare)
    return host, None if port is None else _number(1, 65535, port)


def _base_url(text: str) -> str:
    """`https://host[:port]` in lower case; a lone slash at the end is dropped."""
    scheme, _, rest = text.partition("://")
    if scheme.lower() != "https":
        raise ValueError
    host, port = _authority(rest.removesuffix("/"))
    return f"https://{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"


def _listen(text: str) -> tuple[str, int]:
    host, port = _authority(text)
    if port is None:
        raise ValueError
    return host, port


def _database_url(text: str) -> str:
    if text.startswith(_SQLITE):
        return _sqlite_url(text)
    if text.startswith("postgres://"):
        raise _HintError("write postgresql:// instead of postgres://")
    if not text.startswith(_POSTGRESQL):
        raise ValueError
    # A driver that misreads a URL quotes what it took for the port: a piece of the password.
    if not _POSTGRESQL_URL.fullmatch(text):
        raise _HintError("write / ? # and brackets in a user name or password percent-encoded")
    return text


def _sqlite_url(text: str) -> str:
    path = text.removeprefix(_SQLITE)
    if not path or path.endswith("/") or "?" in path or "#" in path:
        raise _HintError("PATH is a file's, without ? and #; an absolute one makes four slashes")
    if path == ":memory:":
        raise _HintError("a database in memory would forget what it promised to keep")
    return text


def _limits_url(text: str) -> str:
    if text != "memory:" and not _SHARED_LIMITS_URL.fullmatch(text):
        raise ValueError
    return text


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(_network(item.strip()) for item in text.split(","))


def _network(text: str) -> IPv4Network | IPv6Network:
    # The standard library would also take netmasks, which read like addresses.
    if not _CIDR.fullmatch(text):
        raise ValueError
    interface = ip_interface(text)
    if interface.ip != interface.network.network_address:
        raise _HintError(f"{interface} is an address within a network; the network is {interface.network}")
    if interface.network.prefixlen == 0:
        raise _HintError("a network of everybody would let clients say where they come from and that they use HTTPS")
    return interface.network


def _secret_keys(text: str) -> tuple[str, ...]:
    keys = tuple(key.strip() for key in text.split(","))
    if min(map(len, keys)) < _SECRET_KEY_MIN_CHARS:
        raise ValueError
    return keys


_TABLE: dict[str, _Setting] = {
    "ENVIRONMENT": _one_of("development", "production"),
    "BASE_URL": _Setting(_base_url, "https://host or https://host:port and nothing after it"),
    "HOST": _Setting(_host, "an IP address (IPv6 without brackets) or a host name", "127.0.0.1"),
    "PORT": _whole_number(1, 65535, default=8443),
    "DATA_DIR": _Setting(_path, "the path of a folder", Path("data")),
    "DATABASE_URL": _Setting(_database_url, "sqlite:///PATH or postgresql://…", may_be_in_file=True),
    "DATABASE_POOL": _whole_number(2, 1000, default=20),
    "DATABASE_PREPARED": _Setting(_SWITCH.__getitem__, "on or off", default=True),
    "LIMITS_URL": _Setting(_limits_url, "memory: or redis://…, rediss://… or unix://…", may_be_in_file=True),
    "TLS_CERT": _Setting(_path, "the path of a certificate chain in PEM"),
    "TLS_KEY": _Setting(_path, "the path of a private key in PEM"),
    "TRUSTED_PROXIES": _Setting(_networks, "networks like 10.0.0.0/8 or addresses, with commas between", ()),
    "SECRET_KEY": _Setting(
        _secret_keys,
        f"keys of at least {_SECRET_KEY_MIN_CHARS} characters each, with commas between",
        default=(),
        may_be_in_file=True,
    ),
    "WORKERS": _whole_number(1, 1000, default=1),
    "DRAIN_S": _whole_number(0, 3600, default=10),
    "METRICS_LISTEN": _Setting(_listen, "HOST:PORT (an IPv6 address in brackets)"),
    "LOG_FORMAT": _one_of("console", "json"),
}
_FIELDS = {"SECRET_KEY": "secret_keys"}

SETTING_NAMES = tuple(_TABLE)
"""Every setting, without the prefix of its variable."""

VARIABLE_NAMES = tuple(
    f"{_PREFIX}{name}{suffix}"
    for name, setting in _TABLE.items()
    for suffix in ("", "_FILE")[: 1 + setting.may_be_in_file]
)
"""Every variable that is read; any other that begins with `STOPLIST_` is refused."""

_SERVE_REFUSALS: tuple[tuple[Callable[[Settings], bool], str], ...] = (
    (
        lambda it: it.workers > 1 and not _is_on_postgresql(it),
        "STOPLIST_WORKERS or --workers must be 1 on SQLite, which one process serves: for more, move to PostgreSQL"
        " (`stoplist copy`) and set STOPLIST_LIMITS_URL to a Valkey or Redis server",
    ),
    (
        lambda it: it.workers > 1 and it.limits_url in (None, "memory:"),
        "STOPLIST_LIMITS_URL must name a Valkey or Redis server (redis://…) where STOPLIST_WORKERS or --workers is"
        " above 1: the processes must count requests together",
    ),
    (
        lambda it: _is_on_postgresql(it) and it.limits_url is None,
        "STOPLIST_LIMITS_URL must be set with PostgreSQL: redis://… names the Valkey or Redis server at which all"
        " processes count, memory: says that this is the only one",
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
        "STOPLIST_TLS_CERT and STOPLIST_TLS_KEY must be set in production, or STOPLIST_TRUSTED_PROXIES where"
        " proxies end TLS",
    ),
)


def _is_on_postgresql(settings: Settings) -> bool:
    return settings.database_url.startswith(_POSTGRESQL)


def _by_setting(texts: Mapping[str, str]) -> list[dict[str, str]]:
    """The same variables, those of one setting together."""
    settings: dict[str, dict[str, str]] = {}
    for variable, text in texts.items():
        name = variable.removesuffix("_FILE") if variable in VARIABLE_NAMES else variable
        settings.setdefault(name, {})[variable] = text
    return list(settings.values())


def _env_file_texts(path: Path) -> dict[str, str]:
    """What a `.env` file sets under names of ours; without a file, nothing."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            bindings = list(parse_stream(file))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path.name} cannot be read: {_reason(error)}") from None
    for binding in bindings:
        # dotenv_values() would skip such a line with a warning: a key with a missing quote would be no key.
        if binding.error:
            raise SettingsError(f"{path.name} line {binding.original.line} must be NAME=value or a comment")
    return {it.key: it.value or "" for it in bindings if it.key and it.key.startswith(_PREFIX)}


def _values(texts: Mapping[str, str], *, found_in: str) -> dict[str, Any]:
    """The values by setting that the variables of one place hold; an empty variable counts as unset."""
    unknown = next((variable for variable in texts if variable not in VARIABLE_NAMES), None)
    if unknown is not None:
        nearest = get_close_matches(unknown[:80], VARIABLE_NAMES, n=1, cutoff=0)[0]
        shown = unknown.encode("ascii", "backslashreplace").decode()[:80]
        raise SettingsError(f"{shown}{found_in} is no setting; the nearest one is {nearest}")
    return {
        name: parse(name, _text(variable, texts, found_in=found_in), label=f"{variable}{found_in}")
        for name in _TABLE
        if (variable := _variable(name, texts, found_in=found_in))
    }


def _variable(name: str, texts: Mapping[str, str], *, found_in: str) -> str | None:
    """The one variable that sets this setting, if any does."""
    variables = [it for it in (f"{_PREFIX}{name}", f"{_PREFIX}{name}_FILE") if texts.get(it)]
    if len(variables) > 1:
        raise SettingsError(f"{' and '.join(variables)} are both set{found_in}: set one of them")
    return variables[0] if variables else None


def _text(variable: str, texts: Mapping[str, str], *, found_in: str) -> str:
    """What a variable says, or the file that it names; one final newline of the file is dropped."""
    if not variable.endswith("_FILE"):
        return texts[variable]
    return _content(f"{variable}{found_in}", Path(texts[variable])).removesuffix("\n").removesuffix("\r")


def _content(label: str, path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, ValueError) as error:
        # The path is not repeated: somebody may have put the secret itself there.
        raise SettingsError(f"{label} must name a file that can be read: {_reason(error)}") from None


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or "not text in UTF-8"
