"""A backup is made under load and restored as the operator guide says.

Source: docs/interface.md sections D1 (After a restore) and D9.
"""

import asyncio
import contextlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.constants import HIGH_LIMIT
from tests.e2e import load
from tests.e2e.partners import new_token, read_feed
from tests.e2e.server_process import STOPLIST, Installation, RunningServer
from tests.keys import CLIENT_CREDENTIALS, EVERY_PERMISSION, Key
from tests.server.serving import RawConnection

WRITERS = 4
BATCHES_BEFORE = 20


class _SmallBatchWriter:
    """Sends small batches endlessly; `answered` are the addresses answered 200."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.answered: list[str] = []

    async def work(self, line: RawConnection, access_token: str) -> None:
        nth = 0
        while True:
            nth += 1
            addresses = [f"p{self._number}-{nth}-{person}@example.org" for person in range(5)]
            batch = [{"address": address} for address in addresses]
            answer = await load.send_once(line, load.submit(access_token, "email", batch))
            assert answer.status == 200, answer.body
            self.answered += addresses


def test_a_backup_under_load_is_restored(installation: Installation) -> None:
    """Writes confirmed before it began are in it; cursors and tokens from before the restore are refused, keys work."""
    installation.migrate()
    key = installation.new_key(per_minute=HIGH_LIMIT, may=EVERY_PERMISSION)
    backup = installation.folder / "backup.db"
    with installation.serving() as server:
        before, after, cursor, token = asyncio.run(_back_up_under_load(installation, server, key, backup))
        found = {one["check"]: one["status"] for one in json.loads(installation.run("doctor", "--json").out)}
        assert {found[check] for check in ("settings", "database", "schema", "secret key", "certificate")} == {"ok"}
        assert server.terminate() == 0
    assert "overwrites nothing" in installation.refused("backup", str(backup))

    kept = _addresses(backup)
    assert set(before) <= set(kept)
    assert len(kept) < len(after), "somebody wrote on after the backup"

    _restore(installation, backup)
    assert json.loads(installation.ok("after-restore", "--json")) == {"feeds": 1, "credentials": 1, "groups": 0}
    with installation.serving() as server, server.client() as client:
        path = "/api/v1/unsubscribe/email"
        assert client.get(path, headers=_bearer(token)).status_code == 401
        tokens = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key).json()
        bearer = _bearer(tokens["access_token"])
        refused = client.get(path, params={"cursor": cursor}, headers=bearer)
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_cursor")
        feed = asyncio.run(read_feed(server, key))
        assert sorted(record["address"] for record in feed.records.values()) == sorted(kept)
        sent = {"all_groups": True, "items": [{"address": "after@example.org"}]}
        assert client.post(path, json=sent, headers=bearer).json()["created"] == 1


async def _back_up_under_load(
    installation: Installation, server: RunningServer, key: Key, backup: Path
) -> tuple[list[str], list[str], str, str]:
    """Return the addresses answered before the backup began, and in all; and a cursor and a token of that time."""
    writers = [_SmallBatchWriter(number) for number in range(WRITERS)]
    async with load.connections([server], WRITERS + 1) as lines:
        token = await new_token(lines[-1], load.issue(key))
        work = [asyncio.create_task(one.work(line, token)) for one, line in zip(writers, lines, strict=False)]
        await load.run_until(work, lambda: all(len(one.answered) >= 5 * BATCHES_BEFORE for one in writers))
        answer = await load.send_once(lines[-1], load.follow(token, "email", limit=1, cursor=None))
        before = [address for one in writers for address in one.answered]
        process = await asyncio.create_subprocess_exec(
            STOPLIST, "backup", str(backup), "--json", cwd=installation.folder, env=installation.variables,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == 0
        assert json.loads(out)["path"] == str(backup)
        counts = [len(one.answered) for one in writers]
        await load.run_until(work, lambda: all(len(one.answered) > n for one, n in zip(writers, counts, strict=True)))
        for task in work:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*work)
    return before, [address for one in writers for address in one.answered], answer.json()["next_cursor"], token


def _restore(installation: Installation, backup: Path) -> None:
    """Replace the database and its side files by the backup, as docs/operate.md says."""
    for name in ("stoplist.db", "stoplist.db-wal", "stoplist.db-shm"):
        (installation.data_dir / name).unlink(missing_ok=True)
    (installation.data_dir / "stoplist.db").write_bytes(backup.read_bytes())
    (installation.data_dir / "stoplist.db").chmod(0o600)


def _addresses(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return [row[0] for row in connection.execute("SELECT address FROM unsubscribes")]


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}
