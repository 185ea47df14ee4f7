"""Token stores: atomic, private, and with one writer at a time."""

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stoplist_client.errors import TokenStoreError
from stoplist_client.tokens.stores import FileStore, MemoryStore, TokenFile, TokenMemory, decode_tokens, encode_tokens
from stoplist_client.tokens.tokens import Tokens, TokenStore, store_for

from tests.constants import PATIENCE_S

pytestmark = pytest.mark.interpreter

BASE_URL, CLIENT_ID = "https://localhost:8443", "svc_ci_Example1Example2Exam"
_FORKED = multiprocessing.get_context("fork")
# Newer Pythons warn about forks in a process with threads, such as readers of a server's log. These children use none.
_forks = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def tokens(number: int = 1, *, is_presented: bool = False) -> Tokens:
    """Return tokens that differ from those of another number."""
    return Tokens(
        base_url=BASE_URL,
        client_id=CLIENT_ID,
        access_token=f"svc_at_{number}",
        access_ends_s=1000.5 + number,
        refresh_token=f"svc_rt_{number}",
        refresh_ends_s=2000.5 + number,
        is_presented=is_presented,
    )


@pytest.fixture
def store(tmp_path: Path) -> TokenFile:
    """The file of a key, in a folder that does not exist yet."""
    return FileStore(folder=tmp_path / "state" / "tokens").of(BASE_URL, CLIENT_ID)


@pytest.fixture(params=["file", "memory"])
def either(request: pytest.FixtureRequest, store: TokenFile) -> TokenStore:
    """Each kind of store."""
    return store if request.param == "file" else MemoryStore().of(BASE_URL, CLIENT_ID)


def locked(store: TokenStore) -> Callable[[], None]:
    """Lock the store, which must be free, and return the function that unlocks it."""
    unlock = store.try_lock()
    assert unlock is not None
    return unlock


def test_tokens_written_last_are_read(either: TokenStore) -> None:
    """None before the first write, then the latest tokens with their mark."""
    assert either.read() is None
    either.write(tokens(1))
    assert either.read() == tokens(1)
    either.write(tokens(1, is_presented=True))
    assert either.read() == tokens(1, is_presented=True)


def test_repr_shows_no_token(store: TokenFile) -> None:
    store.write(tokens())
    for shown in map(repr, (tokens(), store, store.read())):
        assert "svc_at" not in shown
        assert "svc_rt" not in shown


def test_each_key_has_separate_tokens(tmp_path: Path) -> None:
    """The same key at another service is another key."""
    for keyed in (FileStore(folder=tmp_path), MemoryStore()):
        store_for(keyed, BASE_URL, CLIENT_ID).write(tokens(1))
        assert store_for(keyed, BASE_URL, CLIENT_ID).read() == tokens(1)
        assert store_for(keyed, "https://localhost:9443", CLIENT_ID).read() is None
        assert store_for(keyed, BASE_URL, "svc_ci_another").read() is None


def test_file_store_uses_a_given_path(tmp_path: Path) -> None:
    store_for(FileStore(tmp_path / "mine.json"), BASE_URL, CLIENT_ID).write(tokens())
    assert json.loads((tmp_path / "mine.json").read_text())["client_id"] == CLIENT_ID


def test_chdir_does_not_change_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Daemons change their working directory."""
    monkeypatch.chdir(tmp_path)
    store = FileStore(folder="tokens").of(BASE_URL, CLIENT_ID)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.write(tokens())
    assert store.path.parent == tmp_path / "tokens"
    assert store.read() == tokens()


def test_default_folder_is_that_of_the_user(client_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STOPLISTCLIENT_DIR, or else the folder of the platform."""
    assert FileStore().of(BASE_URL, CLIENT_ID).path.parent == client_folder
    monkeypatch.delenv("STOPLISTCLIENT_DIR")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/srv/someone")
    assert FileStore().of(BASE_URL, CLIENT_ID).path.parent == Path("/srv/someone/stoplist-client")


def test_custom_store_is_used_directly() -> None:
    """Three methods are enough for a store."""

    class Own:
        def read(self) -> Tokens | None:
            return None

        def write(self, tokens: Tokens) -> None: ...

        def try_lock(self) -> Callable[[], None] | None:
            return None

    own = Own()
    assert store_for(own, BASE_URL, CLIENT_ID) is own


def test_file_and_folder_are_readable_by_their_owner_only(store: TokenFile) -> None:
    """0600 and 0700, whatever the umask."""
    before = os.umask(0)
    try:
        locked(store)()
        store.write(tokens())
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.path.parent.iterdir()}
    assert modes == {store.path.name: 0o600, f"{store.path.name}.lock": 0o600}
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("umask", [0, 0o027, 0o377])
def test_created_parent_folders_are_private(tmp_path: Path, umask: int) -> None:
    """Existing folders keep their mode."""
    (tmp_path / "there").mkdir(mode=0o755)
    store = FileStore(folder=tmp_path / "there" / "one" / "two").of(BASE_URL, CLIENT_ID)
    before = os.umask(umask)
    try:
        store.write(tokens())
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("there", "there/one", "there/one/two")]
    assert modes == [0o755, 0o700, 0o700]


@pytest.mark.parametrize("mode", [0o1777, 0o770, 0o720, 0o702])
@pytest.mark.parametrize("act", ["read", "write", "try_lock"])
def test_folder_writable_by_others_is_refused(store: TokenFile, mode: int, act: str) -> None:
    """Others could restore old tokens or remove the lock. The message says what to do."""
    store.write(tokens())
    store.path.parent.chmod(mode)
    with pytest.raises(TokenStoreError, match=r"chmod go-w.*STOPLISTCLIENT_DIR"):
        getattr(store, act)(*([tokens(2)] if act == "write" else []))
    store.path.parent.chmod(0o755)
    assert store.read() == tokens()


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of root is accepted, since root can do everything anyway."""
    store = FileStore(folder=tmp_path).of(BASE_URL, CLIENT_ID)
    owner = tmp_path.stat().st_uid
    assert store.read() is None
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    stat_of, monkeypatched = os.stat, {"uid": owner or 7}

    def owned(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        found = stat_of(path, *arguments, **options)
        return os.stat_result((*found[:4], monkeypatched["uid"], *found[5:]))

    monkeypatch.setattr(os, "stat", owned)
    with pytest.raises(TokenStoreError, match="belongs to another user"):
        store.read()
    monkeypatched["uid"] = 0
    assert store.read() is None


@pytest.mark.parametrize("of_what", ["file", "folder"])
def test_link_and_target_share_file_and_lock(tmp_path: Path, of_what: str) -> None:
    """A mark written under one name is seen under the other, and the link stays a link."""
    (tmp_path / "real").mkdir()
    target = TokenFile(tmp_path / "real" / "tokens.json")
    if of_what == "file":
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "tokens.json").symlink_to(target.path)
    else:
        (tmp_path / "links").symlink_to(tmp_path / "real")
    link = TokenFile(tmp_path / "links" / "tokens.json")
    for number, (one, other) in enumerate([(link, target), (target, link)]):
        unlock = locked(one)
        assert other.try_lock() is None
        one.write(tokens(number, is_presented=True))
        assert other.read() == tokens(number, is_presented=True)
        unlock()
    assert (tmp_path / "links" if of_what == "folder" else tmp_path / "links" / "tokens.json").is_symlink()


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o610])
def test_file_readable_by_others_is_refused(store: TokenFile, mode: int) -> None:
    """The message says how to correct that, and shows no content."""
    store.write(tokens())
    store.path.chmod(mode)
    with pytest.raises(TokenStoreError, match="chmod 600") as refused:
        store.read()
    assert "svc_" not in str(refused.value)


def test_file_of_another_user_is_refused(store: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """That user could have put tokens there, and could read new ones."""
    store.write(tokens())
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TokenStoreError, match="another user"):
        store.read()


def test_folder_in_place_of_the_file_is_refused(store: TokenFile) -> None:
    """It does not count as an empty store."""
    store.path.mkdir(parents=True)
    with pytest.raises(TokenStoreError, match="is not a file"):
        store.read()
    with pytest.raises(TokenStoreError, match="cannot be written"):
        store.write(tokens())


@pytest.mark.parametrize("act", ["read", "write", "try_lock"])
def test_file_in_place_of_the_folder_is_refused(tmp_path: Path, act: str) -> None:
    """The message names the file, also where it stands in place of a folder above, and the remedy."""
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        store = FileStore(folder=folder).of(BASE_URL, CLIENT_ID)
        with pytest.raises(TokenStoreError, match=rf"{file} is a file, not a folder.*STOPLISTCLIENT_DIR"):
            getattr(store, act)(*([tokens()] if act == "write" else []))


@pytest.mark.parametrize("act", ["write", "try_lock"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_unwritable_place_is_refused(store: TokenFile, monkeypatch: pytest.MonkeyPatch, act: str, number: int) -> None:
    """The place is forbidden, read-only or full: the message has the reason and the remedy."""
    store.path.parent.mkdir(parents=True)
    monkeypatch.setattr(os, "open", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(TokenStoreError, match=f"{os.strerror(number)}.*STOPLISTCLIENT_DIR"):
        getattr(store, act)(*([tokens()] if act == "write" else []))


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_leaves_the_old_tokens_only(store: TokenFile, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A full disk fails at fsync, a busy file at the rename."""
    store.write(tokens(1))
    monkeypatch.setattr(os, step, Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(TokenStoreError, match="No space left"):
        store.write(tokens(2))
    assert store.read() == tokens(1)
    assert [path.name for path in store.path.parent.iterdir()] == [store.path.name]


def test_tokens_are_synced_before_the_rename(store: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the folder is synced: a power cut leaves the old tokens or the new."""
    store.path.parent.mkdir(parents=True)
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("folder synced" if is_folder else f"file synced with {os.fstat(descriptor).st_size > 0}")
        fsync(descriptor)

    def noting_replace(source: Any, target: Any) -> None:
        steps.append("renamed")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    store.write(tokens())
    assert steps == ["file synced with True", "renamed", "folder synced"]


def test_files_of_killed_writers_are_removed(store: TokenFile) -> None:
    """The next writer removes their temporary files, and no others."""
    store.write(tokens(1))
    folder = store.path.parent
    left = folder / f".{store.path.name}.0123456789abcdef"
    left.write_text("{")
    (folder / ".another").write_text("kept")
    store.write(tokens(2))
    assert not left.exists()
    assert (folder / ".another").exists()
    assert store.read() == tokens(2)


@_forks
def test_writer_killed_at_any_step_leaves_complete_tokens(store: TokenFile) -> None:
    """SIGKILL before each call; a reader finds the tokens of one write."""
    store.write(tokens(1))
    for step in ("fsync", "replace"):
        for call in (1, 2):
            process = _FORKED.Process(target=_write_and_die, args=(store, step, call))
            process.start()
            process.join(PATIENCE_S)
            assert process.exitcode == (-signal.SIGKILL if (step, call) != ("replace", 2) else 0)
            assert store.read() in (tokens(1), tokens(2))
            store.write(tokens(1))
            assert [path.name for path in store.path.parent.iterdir()] == [store.path.name]


def _write_and_die(store: TokenFile, step: str, call: int) -> None:
    calls = iter(range(1, 10))
    original = getattr(os, step)

    def dying(*arguments: Any) -> None:
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        original(*arguments)

    setattr(os, step, dying)
    store.write(tokens(2))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        encode_tokens(tokens())[:-20],
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b'{"access_token": "a"}',
        encode_tokens(tokens()).replace(b"svc_at_1", b"svc_at\\n1"),
        encode_tokens(tokens()).replace(b"svc_rt_1", "naïve".encode()),
        encode_tokens(tokens()).replace(b"1001.5", b'"soon"'),
        b"x" * 1_000_000,
    ],
)
def test_damaged_content_is_ignored(store: TokenFile, content: bytes) -> None:
    """Half a file, another file, or tokens that no header can carry: a worker must be able to go on."""
    store.write(tokens())
    store.path.write_bytes(content)
    assert store.read() is None
    store.write(tokens(2))
    assert store.read() == tokens(2)


@given(st.binary(max_size=300))
def test_any_bytes_are_tokens_or_nothing(content: bytes) -> None:
    assert decode_tokens(content) is None


@given(cut=st.integers(0, len(encode_tokens(tokens())) - 2))
def test_truncated_tokens_are_ignored(cut: int) -> None:
    assert decode_tokens(encode_tokens(tokens())[:cut]) is None


def test_forget_deletes_the_tokens(store: TokenFile) -> None:
    """The lock file stays, since others may be waiting for it."""
    assert not store.forget()
    unlock = locked(store)
    store.write(tokens())
    assert store.forget()
    unlock()
    assert store.read() is None
    assert [path.suffix for path in store.path.parent.iterdir()] == [".lock"]


def test_lock_has_one_holder(either: TokenStore) -> None:
    """This holds within one thread too, as with tasks; any thread may release it."""
    unlock = locked(either)
    assert either.try_lock() is None
    assert either.try_lock() is None
    thread = threading.Thread(target=unlock)
    thread.start()
    thread.join()
    locked(either)()


def test_threads_exclude_each_other(either: TokenStore) -> None:
    """When many try at once, one gets the lock each time."""
    inside, most = 0, 0
    guard, start = threading.Lock(), threading.Barrier(8)

    def work() -> None:
        nonlocal inside, most
        start.wait()
        done = 0
        while done < 20:
            unlock = either.try_lock()
            if unlock is None:
                continue
            with guard:
                inside += 1
                most = max(most, inside)
            os.sched_yield()
            with guard:
                inside -= 1
            unlock()
            done += 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert most == 1


@pytest.fixture
def holder(store: TokenFile) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it is killed or continued."""
    code = (
        "import sys; from stoplist_client.tokens.stores import TokenFile; "
        "unlock = TokenFile(sys.argv[1]).try_lock(); print('held', flush=True); input(); "
        "unlock(); print('free', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_processes_exclude_each_other(store: TokenFile, holder: subprocess.Popen[str]) -> None:
    """While another process holds the lock, nobody gets it here."""
    assert store.try_lock() is None
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "free\n"
    locked(store)()


def test_killed_holder_releases_the_lock(store: TokenFile, holder: subprocess.Popen[str]) -> None:
    assert store.try_lock() is None
    holder.kill()
    holder.wait()
    locked(store)()


@_forks
def test_forked_child_does_not_keep_the_lock(store: TokenFile) -> None:
    """It inherits neither the lock nor the right to release it."""
    unlock = locked(store)
    ends, has_ended = _FORKED.Event(), _FORKED.Event()
    child = _FORKED.Process(target=_outlive, args=(unlock, has_ended, ends))
    child.start()
    assert has_ended.wait(PATIENCE_S)
    assert store.try_lock() is None  # the child's call changed nothing
    unlock()
    locked(store)()  # although the child lives
    ends.set()
    child.join(PATIENCE_S)


def _outlive(unlock: Callable[[], None], has_ended: Any, ends: Any) -> None:
    unlock()
    has_ended.set()
    ends.wait(PATIENCE_S)


def test_file_system_without_locks_is_refused(store: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that only creates a file would outlive its holder."""
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    for _ in range(2):
        with pytest.warns(UserWarning, match="flock"), pytest.raises(TokenStoreError, match="does not support locks"):
            store.try_lock()


@_forks
def test_memory_store_is_empty_after_a_fork() -> None:
    """The child has neither the tokens, which it would present again, nor the lock of a missing thread."""
    memory = MemoryStore().of(BASE_URL, CLIENT_ID)
    memory.write(tokens())
    unlock = locked(memory)
    found = _FORKED.SimpleQueue()
    child = _FORKED.Process(target=_look, args=(memory, found))
    child.start()
    child.join(PATIENCE_S)
    assert found.get() == (True, True)
    assert memory.read() == tokens()
    unlock()


def _look(memory: TokenMemory, found: Any) -> None:
    is_empty = memory.read() is None
    found.put((is_empty, memory.try_lock() is not None))


def test_memory_lock_ends_with_its_holder() -> None:
    """If the unlock function is lost, nobody can hold the lock any longer."""
    memory = MemoryStore().of(BASE_URL, CLIENT_ID)
    unlock: Callable[[], None] | None = locked(memory)
    assert memory.try_lock() is None
    del unlock
    locked(memory)()
