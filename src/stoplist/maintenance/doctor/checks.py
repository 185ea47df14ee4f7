"""All checks of an installation, in the order in which a person would look; nothing is changed by any of them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from stoplist.clock import Clock
from stoplist.errors import SettingsError
from stoplist.maintenance.doctor.certificate import certificate
from stoplist.maintenance.doctor.database import database
from stoplist.maintenance.doctor.files import SECRETS, disk_room, file_modes, file_system, open_files
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, wrong
from stoplist.maintenance.doctor.key import secret_key
from stoplist.maintenance.doctor.limit_store import limit_store
from stoplist.settings import Settings, find_errors, load, serve_errors, variables_set


async def examine(environ: Mapping[str, str], *, env_file: Path, data_dir: str | None) -> list[Finding]:
    """What every check found, whether servers run or not. `data_dir` is the flag, which wins over the variables."""
    try:
        settings = load(environ, env_file=env_file, flags={"DATA_DIR": data_dir})
        variables = variables_set(environ, env_file=env_file)
    except SettingsError as error:
        found = find_errors(environ, env_file=env_file) or [error.text]
        return [
            *(wrong("settings", f"{text}.") for text in found),
            not_checked("everything else", "It depends on the settings: put them right first."),
        ]
    known = await database(settings, is_environment_set="STOPLIST_ENVIRONMENT" in variables)
    return [
        *_of_settings(settings),
        *known.findings,
        secret_key(settings, is_needed=known.holds_feeds),
        file_modes(settings, variables, _secrets_file(env_file)),
        *disk_room(settings),
        file_system(settings),
        certificate(settings, Clock().now_ms()),
        await limit_store(settings),
        open_files(),
    ]


def _secrets_file(env_file: Path) -> Path | None:
    """The `.env` file, if it holds a secret itself."""
    of_file = variables_set({}, env_file=env_file)
    return env_file if any(variable in of_file for variable in SECRETS) else None


def _of_settings(settings: Settings) -> Iterator[Finding]:
    found = serve_errors(settings)
    yield from (wrong("settings", f"{text}.") for text in found)
    if not found:
        yield ok("settings", "Each is well formed, and a server can run with them.")
