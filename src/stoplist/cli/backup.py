"""`stoplist backup`: copies a SQLite database while the server runs."""

from pathlib import Path

import click

from stoplist.cli.context import data_dir_option, database_file, settings_of
from stoplist.cli.printing import json_option, print_error, print_json, print_line
from stoplist.db.backup import back_up
from stoplist.db.last_backup import note_backup
from stoplist.errors import Refused
from stoplist.secret_key import FILE_NAME
from stoplist.settings import Settings


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@data_dir_option
@json_option
def command(file: Path, data_dir: str | None, as_json: bool) -> None:
    """Copy the SQLite database to FILE. The server may run meanwhile.

    An existing FILE is never overwritten. The new file is complete and checked, or does not exist. The secret key is
    not in it: keep that too. To restore, stop the server, replace the database by FILE, delete the -wal and -shm files
    beside the database, run `stoplist after-restore`, and start the server.
    """
    settings = settings_of(data_dir)
    source = database_file(settings)
    if source is None:
        raise Refused(
            "This database is on PostgreSQL, which is backed up with its own tools: pg_dump for one database, "
            "pg_basebackup with a WAL archive for a whole server and any point in time."
        )
    result = back_up(source, file)
    if not note_backup(source):
        print_error(
            f"The backup is complete, but {source.parent} cannot be written to, so the metrics do not show this backup."
        )
    key = _key_file(settings)
    if as_json:
        print_json({**result._asdict(), "path": str(result.path), "secret_key": None if key is None else str(key)})
        return
    size = f"{result.bytes} bytes, schema {result.schema}, {result.duration_ms} ms"
    print_line(f"The backup is at {result.path}: {size}.")
    if key is None:
        print_line("It does not contain the secret key, STOPLIST_SECRET_KEY. Keep that in another place.")
    else:
        print_line(f"It does not contain the secret key. Keep {key} in another place.")
    print_line("After a restore, run `stoplist after-restore` before you start the server.")


def _key_file(settings: Settings) -> Path | None:
    """Return the path of the secret key, or None if a setting holds or names it."""
    return None if settings.secret_keys else (settings.data_dir / FILE_NAME).absolute()
