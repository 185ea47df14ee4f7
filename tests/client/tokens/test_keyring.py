"""KeyringStore, with keyrings in memory in place of the system's."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.errors import PasswordSetError
from stoplist_client.errors import ConfigurationError, TokenStoreError
from stoplist_client.tokens import keyring_store
from stoplist_client.tokens.keyring_store import KeyringStore, TokenKeyring
from stoplist_client.tokens.stores import encode_tokens

from tests.client.tokens.test_stores import BASE_URL, CLIENT_ID, locked, tokens


class WorkingKeyring(KeyringBackend):
    """A keyring that works."""

    priority = -1  # nobody else takes it for the system's

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.held[service, username]


class LockedKeyring(WorkingKeyring):
    """A keyring that its owner did not unlock."""

    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError("the session bus says no")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise PasswordSetError(f"cannot set {password}")


class ForgetfulKeyring(WorkingKeyring):
    """A keyring that keeps only the first entry."""

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held.setdefault((service, username), password)


@pytest.fixture
def entries() -> Iterator[WorkingKeyring]:
    """The keyring that the package `keyring` finds."""
    before = keyring.get_keyring()
    entries = WorkingKeyring()
    keyring.set_keyring(entries)
    yield entries
    keyring.set_keyring(before)


def test_tokens_are_kept_in_the_system_keyring(entries: WorkingKeyring, client_folder: Path) -> None:
    """One entry per key, under the client's name; no file contains tokens."""
    store = KeyringStore().of(BASE_URL, CLIENT_ID)
    assert store.read() is None
    locked(store)()
    store.write(tokens())
    assert store.read() == tokens()
    assert KeyringStore().of("https://localhost:9443", CLIENT_ID).read() is None
    (entry,) = entries.held
    assert entry[0] == "stoplist-client"
    assert entry[1].startswith(f"{CLIENT_ID} at {BASE_URL} ")
    assert [path.read_bytes() for path in client_folder.iterdir()] == [b""]


def test_forget_deletes_the_entry(entries: WorkingKeyring) -> None:
    """It returns whether there was one."""
    store = KeyringStore().of(BASE_URL, CLIENT_ID)
    assert not store.forget()
    store.write(tokens())
    assert store.forget()
    assert entries.held == {}


def test_lock_of_a_keyring_is_exclusive(tmp_path: Path) -> None:
    """It is a file lock, and so excludes all other stores of the key."""
    first, second = (KeyringStore(WorkingKeyring(), folder=tmp_path).of(BASE_URL, CLIENT_ID) for _ in range(2))
    unlock = locked(first)
    assert second.try_lock() is None
    unlock()
    locked(second)()


def test_tokens_are_found_only_with_the_same_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock in another folder or on another machine would let a refresh token be presented twice."""
    entries = WorkingKeyring()
    KeyringStore(entries, folder=tmp_path / "a").of(BASE_URL, CLIENT_ID).write(tokens())
    assert KeyringStore(entries, folder=tmp_path / "b").of(BASE_URL, CLIENT_ID).read() is None
    assert KeyringStore(entries, folder=tmp_path / "a").of(BASE_URL, CLIENT_ID).read() == tokens()
    monkeypatch.setattr(keyring_store, "node", lambda: "another-machine")
    assert KeyringStore(entries, folder=tmp_path / "a").of(BASE_URL, CLIENT_ID).read() is None


def test_damaged_entry_is_ignored(tmp_path: Path) -> None:
    """A worker must be able to go on."""
    entries = WorkingKeyring()
    store = KeyringStore(entries, folder=tmp_path).of(BASE_URL, CLIENT_ID)
    store.write(tokens())
    entries.held = dict.fromkeys(entries.held, "something else")
    assert store.read() is None
    store.write(tokens())
    assert store.read() == tokens()


@pytest.mark.parametrize("keyring_of_the_system", [fail.Keyring, LockedKeyring])
def test_failing_keyring_is_reported_with_a_remedy(tmp_path: Path, keyring_of_the_system: type[KeyringBackend]) -> None:
    """The keyring's own message is hidden, since it may repeat the tokens."""
    store = KeyringStore(keyring_of_the_system(), folder=tmp_path).of(BASE_URL, CLIENT_ID)
    for act in (store.read, lambda: store.write(tokens())):
        with pytest.raises(TokenStoreError, match=r"keyring diagnose.*FileStore") as refused:
            act()
        assert "svc_" not in str(refused.value)


def test_entry_that_is_not_kept_is_an_error(tmp_path: Path) -> None:
    """Without the mark, the refresh token could be sent again."""
    discarding = null.Keyring()  # type: ignore[no-untyped-call]
    nothing = KeyringStore(discarding, folder=tmp_path).of(BASE_URL, CLIENT_ID)
    with pytest.raises(TokenStoreError, match="did not keep"):
        nothing.write(tokens())
    store: TokenKeyring = KeyringStore(ForgetfulKeyring(), folder=tmp_path).of(BASE_URL, CLIENT_ID)
    store.write(tokens())
    with pytest.raises(TokenStoreError, match="did not keep"):
        store.write(tokens(is_presented=True))


def test_entry_fits_into_small_keyrings() -> None:
    """Windows accepts 2560 bytes of UTF-16; the service's tokens have 56 characters."""
    long = tokens()
    room = 2 * (56 - len(long.access_token) + 56 - len(long.refresh_token))
    assert 2 * len(encode_tokens(long).decode()) + room < 2560


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(keyring_store, "import_module", missing)
    with pytest.raises(ConfigurationError, match=r"pip install 'stoplist-client\[keyring\]'"):
        KeyringStore()
    monkeypatch.setattr(keyring_store, "import_module", importlib.import_module)
    KeyringStore()
