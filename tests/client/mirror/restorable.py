"""A server whose database can be restored to an earlier state while it runs."""

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

from stoplist.clock import Clock
from stoplist.maintenance.after_restore import after_restore
from tests.builders import ADMINISTRATOR, on_database
from tests.client.partners import Partner, Service


class Restorable:
    """A running server, and backups of its database."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._database = service.installation.data_dir / "stoplist.db"
        self._numbers = itertools.count(1)

    def new_partner(self) -> Partner:
        """Create a partner with its own organization."""
        return self.service.new_partner(f"restored-{next(self._numbers)}")

    def backup(self) -> Path:
        """Return a copy of the present database."""
        path = self.service.installation.folder / f"backup-{next(self._numbers)}.db"
        _copy(self._database, path)
        return path

    def restore(self, backup: Path | None = None) -> None:
        """Restore a backup, or restore nothing; all cursors and tokens are refused afterwards."""
        if backup is not None:
            _copy(backup, self._database)
        on_database(
            self.service.installation.database_url, lambda database: after_restore(ADMINISTRATOR, database, Clock())
        )


def give_out_digest(service: Service, org_slug: str, digest: str) -> None:
    """Let the service give out this digest of the organization's e-mail list, until the list changes."""
    with closing(sqlite3.connect(service.installation.data_dir / "stoplist.db", timeout=60)) as database:
        database.execute(
            "UPDATE feeds SET state_digest = ? WHERE channel = 'email' AND organization_id ="
            " (SELECT organization_id FROM organizations WHERE slug = ?)",
            (digest, org_slug),
        )
        database.commit()


def _copy(source: Path, target: Path) -> None:
    """Copy in one transaction, so that the server can go on meanwhile."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target, timeout=60)) as new:
        old.backup(new)
