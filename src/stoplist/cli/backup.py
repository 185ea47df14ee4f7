"""`stoplist backup`: a copy of a SQLite database, made while the server serves."""

from pathlib import Path

import click

from stoplist.cli.context import data_dir_option, database_file, settings_of
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.db.backup import back_up
from stoplist.errors import Refused
from stoplist.secret_key import FILE_NAME
from stoplist.settings import Settings


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@data_dir_option
@json_option
def command(file: Path, data_dir: str | None, as_json: bool) -> None:
    """Copy the SQLite database to FILE, while the server serves or not.

    FILE is never overwritten; it is there whole and checked, or not at all. The secret key is not in it and must be
    kept too. To restore: stop the server, put FILE in the place of the database (without the -wal and -shm files that
    lie there), run `stoplist after-restore`, start the server.
    """
    settings = settings_of(data_dir)
    source = database_file(settings)
    if source is None:
        raise Refused(
            "This database is on PostgreSQL, which is backed up by its own tools: pg_dump for one database, "
            "pg_basebackup with an archive of its log for a whole server and any moment."
        )
    done = back_up(source, file)
    key = _key_file(settings)
    if as_json:
        print_json({**done._asdict(), "path": str(done.path), "secret_key": None if key is None else str(key)})
        return
    print_line(f"The database lies at {done.path}: {done.bytes} bytes, schema {done.schema}, {done.duration_ms} ms.")
    if key is None:
        print_line("The secret key of STOPLIST_SECRET_KEY is not in it: keep that too, apart from this file.")
    else:
        print_line(f"The secret key is not in it: keep {key} too, apart from this file.")
    print_line("After a restore run `stoplist after-restore` before the server starts.")


def _key_file(settings: Settings) -> Path | None:
    """Where the secret key lies; None where a variable holds it or names its place."""
    return None if settings.secret_keys else (settings.data_dir / FILE_NAME).absolute()
