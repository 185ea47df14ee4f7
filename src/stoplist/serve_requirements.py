"""Requirements that the settings of a server must fulfil together. Other commands may run without.

Source: docs/interface.md section D1.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from stoplist.errors import SettingsError
from stoplist.folders import file_in_place_of_folder
from stoplist.setting_texts import read_text
from stoplist.setting_values import POSTGRESQL_SCHEME, SECRET_KEY_MIN_CHARS, SQLITE_SCHEME
from stoplist.settings import Reading, Settings, read, refuse


class Requirement(NamedTuple):
    """The settings that a requirement compares, and a function that returns its error if they violate it."""

    names: frozenset[str]
    violation: Callable[[Settings], str | None]


def server_settings(
    environ: Mapping[str, str],
    *,
    env_file: Path,
    flags: Mapping[str, str | None] | None = None,
    also: tuple[Requirement, ...] = (),
) -> Settings:
    """Return the settings of a server. Raise one SettingsError that lists malformed settings and violated requirements.

    `also` are requirements beyond those of every server. Otherwise as `settings.load`.
    """
    reading = read(environ, env_file=env_file, flags=flags)
    refuse([*reading.errors, *violations(reading, also=also)])
    return reading.settings


def violations(reading: Reading, *, also: tuple[Requirement, ...] = ()) -> list[str]:
    """Return the error of each violated requirement, apart from those that concern a malformed setting.

    Reads the files of `TLS_CERT` and `TLS_KEY`, to check that they are readable.
    """
    found = [
        requirement.violation(reading.settings)
        for requirement in (*_REQUIREMENTS, *also)
        if not requirement.names & reading.malformed
    ]
    return [text for text in found if text is not None]


def require(names: str, is_violated: Callable[[Settings], bool], text: str) -> Requirement:
    """Return a requirement about these settings, with spaces between; `{it.name}` in its error stands for a value."""
    return Requirement(frozenset(names.split()), lambda it: text.format(it=it) if is_violated(it) else None)


def base_url_error(environment: str, settings: Settings) -> str | None:
    """Return the error if a deployment of this environment needs a base address that is not set."""
    if environment != "production" or settings.is_base_url_set:
        return None
    return (
        "STOPLIST_BASE_URL must be set in production: https:// and the host name that partners and people use. Links"
        " and the API's description are made from it"
    )


def _readable_file(name: str, path_of: Callable[[Settings], Path | None]) -> Requirement:
    def violation(settings: Settings) -> str | None:
        path = path_of(settings)
        try:
            if path is not None:
                read_text(f"STOPLIST_{name} ({path})", path)
        except SettingsError as error:
            return error.text
        return None

    return Requirement(frozenset((name,)), violation)


def _data_folder_error(settings: Settings) -> str | None:
    file = file_in_place_of_folder(settings.data_dir)
    if file is None:
        return None
    return f"STOPLIST_DATA_DIR or --data-dir ({settings.data_dir}) must name a folder, but {file} is a file"


def _database_path_error(settings: Settings) -> str | None:
    if _is_on_postgresql(settings):
        return None
    path = Path(settings.database_url.removeprefix(SQLITE_SCHEME))
    if path.is_dir():
        return f"STOPLIST_DATABASE_URL must name a file, but {path} is a folder"
    if path.parent == settings.data_dir:  # reported as such
        return None
    file = file_in_place_of_folder(path.parent)
    return None if file is None else f"STOPLIST_DATABASE_URL must name a file in a folder, but {file} is a file"


def _is_on_postgresql(settings: Settings) -> bool:
    return settings.database_url.startswith(POSTGRESQL_SCHEME)


_REQUIREMENTS = (
    require(
        "WORKERS DATABASE_URL",
        lambda it: it.workers > 1 and not _is_on_postgresql(it),
        "STOPLIST_WORKERS or --workers must be 1 on SQLite, not {it.workers}: only one process can serve it. For more,"
        " move to PostgreSQL (`stoplist copy`) and set STOPLIST_LIMITS_URL to a Valkey or Redis server",
    ),
    require(
        "WORKERS LIMITS_URL",
        lambda it: it.workers > 1 and it.limits_url in (None, "memory:"),
        "STOPLIST_LIMITS_URL must name a Valkey or Redis server (redis://…) if STOPLIST_WORKERS or --workers is"
        " above 1, and it is {it.workers}: the processes must count requests together",
    ),
    require(
        "FEEDS_URL DATABASE_URL",
        lambda it: it.feeds_url is not None and not _is_on_postgresql(it),
        "STOPLIST_DATABASE_URL must be postgresql://… if STOPLIST_FEEDS_URL is set, since a SQLite file holds accounts"
        " and feeds together: move to PostgreSQL (`stoplist copy`), or unset STOPLIST_FEEDS_URL",
    ),
    require(
        "DATABASE_URL LIMITS_URL",
        lambda it: _is_on_postgresql(it) and it.limits_url is None,
        "STOPLIST_LIMITS_URL must be set with PostgreSQL: redis://… for the Valkey or Redis server at which all"
        " processes count, memory: if this is the only process",
    ),
    require(
        "DATABASE_URL SECRET_KEY",
        lambda it: _is_on_postgresql(it) and not it.secret_keys,
        "STOPLIST_SECRET_KEY or STOPLIST_SECRET_KEY_FILE must be set with PostgreSQL, the same for every"
        f" process: at least {SECRET_KEY_MIN_CHARS} random characters",
    ),
    require(
        "TLS_CERT TLS_KEY",
        lambda it: (it.tls_cert is None) != (it.tls_key is None),
        "STOPLIST_TLS_CERT and STOPLIST_TLS_KEY go together: set both or neither",
    ),
    require(
        "NOTICE_URL NOTICE_SECRET",
        lambda it: (it.notice_url is None) != (not it.notice_secrets),
        "STOPLIST_NOTICE_URL and STOPLIST_NOTICE_SECRET go together: set both or neither",
    ),
    require(
        "ENVIRONMENT TLS_CERT TRUSTED_PROXIES",
        lambda it: it.environment == "production" and it.tls_cert is None and not it.trusted_proxies,
        "STOPLIST_TLS_CERT and STOPLIST_TLS_KEY must be set in production, or STOPLIST_TRUSTED_PROXIES if"
        " proxies terminate TLS",
    ),
    Requirement(frozenset(("ENVIRONMENT", "BASE_URL")), lambda it: base_url_error(it.environment, it)),
    Requirement(frozenset(("DATA_DIR",)), _data_folder_error),
    Requirement(frozenset(("DATA_DIR", "DATABASE_URL")), _database_path_error),
    _readable_file("TLS_CERT", lambda it: it.tls_cert),
    _readable_file("TLS_KEY", lambda it: it.tls_key),
)
