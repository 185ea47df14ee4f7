"""All checks of an installation, in a natural order for a reader. None of them changes anything."""

from collections.abc import Mapping
from pathlib import Path

from stoplist.clock import Clock
from stoplist.maintenance.doctor.certificate import certificate
from stoplist.maintenance.doctor.database import database
from stoplist.maintenance.doctor.feed_states import feed_states
from stoplist.maintenance.doctor.files import SECRETS, disk_space, file_modes, file_system, open_files
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, wrong
from stoplist.maintenance.doctor.key import secret_key
from stoplist.maintenance.doctor.limit_store import limit_store
from stoplist.maintenance.doctor.link_keys import link_keys
from stoplist.maintenance.doctor.notices import notices
from stoplist.maintenance.doctor.pair import lost_groups
from stoplist.maintenance.doctor.people import people
from stoplist.maintenance.doctor.propagation import propagated
from stoplist.serve_requirements import violations
from stoplist.setting_texts import variables_set
from stoplist.settings import read


async def run_checks(
    environ: Mapping[str, str], *, env_file: Path, data_dir: str | None, is_deep: bool = False
) -> list[Finding]:
    """Run every check, whether servers run or not. `data_dir` is the option, which takes precedence over variables.

    With `is_deep`, also those that read every record.
    """
    reading = read(environ, env_file=env_file, flags={"DATA_DIR": data_dir})
    settings_findings = _settings_findings([*reading.errors, *violations(reading)])
    if reading.errors:
        return [
            *settings_findings,
            not_checked("everything else", "It depends on the settings: correct them first."),
        ]
    settings, variables = reading.settings, variables_set(environ, env_file=env_file)
    checked = await database(settings, is_environment_set="STOPLIST_ENVIRONMENT" in variables)
    unreadable = () if checked.accounts is None else checked.accounts.unreadable
    unreadable_keys = () if checked.link_keys is None else checked.link_keys.unreadable
    is_key_needed = checked.holds_feeds or bool(unreadable) or bool(unreadable_keys)
    return [
        *settings_findings,
        *checked.findings,
        secret_key(settings, is_needed=is_key_needed, unreadable=unreadable, unreadable_keys=unreadable_keys),
        people(checked.accounts, settings),
        link_keys(checked.link_keys, Clock().now_ms()),
        *await notices(checked.notices, settings),
        file_modes(settings, variables, _secrets_file(env_file)),
        *disk_space(settings),
        file_system(settings),
        certificate(settings, Clock().now_ms()),
        await limit_store(settings),
        open_files(),
        await propagated(settings),
        *([*await lost_groups(settings), await feed_states(settings)] if is_deep else []),
    ]


def _secrets_file(env_file: Path) -> Path | None:
    """Return the `.env` file if it holds a secret."""
    variables = variables_set({}, env_file=env_file)
    return env_file if any(variable in variables for variable in SECRETS) else None


def _settings_findings(errors: list[str]) -> list[Finding]:
    if not errors:
        return [ok("settings", "All are valid, and a server can run with them.")]
    return [wrong("settings", f"{text}.") for text in errors]
