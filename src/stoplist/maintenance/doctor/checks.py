"""All checks of an installation, in a natural order for a reader. None of them changes anything."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from stoplist.clock import Clock
from stoplist.errors import SettingsError
from stoplist.maintenance.doctor.certificate import certificate
from stoplist.maintenance.doctor.database import database
from stoplist.maintenance.doctor.files import SECRETS, disk_space, file_modes, file_system, open_files
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, wrong
from stoplist.maintenance.doctor.key import secret_key
from stoplist.maintenance.doctor.limit_store import limit_store
from stoplist.settings import Settings, find_errors, load, serve_errors, variables_set


async def run_checks(environ: Mapping[str, str], *, env_file: Path, data_dir: str | None) -> list[Finding]:
    """Run every check, whether servers run or not. `data_dir` is the option, which takes precedence over variables."""
    try:
        settings = load(environ, env_file=env_file, flags={"DATA_DIR": data_dir})
        variables = variables_set(environ, env_file=env_file)
    except SettingsError as error:
        texts = find_errors(environ, env_file=env_file) or [error.text]
        return [
            *(wrong("settings", f"{text}.") for text in texts),
            not_checked("everything else", "It depends on the settings: correct them first."),
        ]
    checked = await database(settings, is_environment_set="STOPLIST_ENVIRONMENT" in variables)
    return [
        *_settings_findings(settings),
        *checked.findings,
        secret_key(settings, is_needed=checked.holds_feeds),
        file_modes(settings, variables, _secrets_file(env_file)),
        *disk_space(settings),
        file_system(settings),
        certificate(settings, Clock().now_ms()),
        await limit_store(settings),
        open_files(),
    ]


def _secrets_file(env_file: Path) -> Path | None:
    """Return the `.env` file if it holds a secret."""
    variables = variables_set({}, env_file=env_file)
    return env_file if any(variable in variables for variable in SECRETS) else None


def _settings_findings(settings: Settings) -> Iterator[Finding]:
    found = serve_errors(settings)
    yield from (wrong("settings", f"{text}.") for text in found)
    if not found:
        yield ok("settings", "All are valid, and a server can run with them.")
