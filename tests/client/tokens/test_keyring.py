"""KeyringStore, with keyrings in memory in place of the system's."""

import importlib
from pathlib import Path

import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.errors import PasswordSetError
from stoplist_client.errors import ConfigurationError, TokenStoreError
from stoplist_client.tokens import keyring_store
from stoplist_client.tokens.keyring_store import KeyringStore, TokenKeyring
from stoplist_client.tokens.stores import encode_tokens

from tests.client.memory_keyring import MemoryKeyring
from tests.client.tokens.test_stores import BASE_URL, CLIENT_ID, locked, tokens


class LockedKeyring(MemoryKeyring):
    """A keyring that its owner did not unlock."""

    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError("the session bus says no")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise PasswordSetError(f"cannot set {password}")


class ForgetfulKeyring(MemoryKeyring):
    """A keyring that keeps only the first entry."""

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held.setdefault((service, username), password)


def test_tokens_are_kept_in_the_system_keyring(memory_keyring: MemoryKeyring, client_folder: Path) -> None:
    """One entry per key, under the client's name; no file contains tokens."""
    store = KeyringStore().of(BASE_URL, CLIENT_ID)
    assert store.read() is None
    locked(store)()
    store.write(tokens())
    assert store.read() == tokens()
    assert KeyringStore().of("https://localhost:9443", CLIENT_ID).read() is None
    (entry,) = memory_keyring.held
    assert entry[0] == "stoplist-client"
    assert entry[1].startswith(f"{CLIENT_ID} at {BASE_URL} ")
    assert [path.read_bytes() for path in client_folder.iterdir()] == [b""]


def test_forget_deletes_the_entry(memory_keyring: MemoryKeyring) -> None:
    """It returns whether there was one."""
    store = KeyringStore().of(BASE_URL, CLIENT_ID)
    assert not store.forget()
    store.write(tokens())
    assert store.forget()
    assert memory_keyring.held == {}


def test_lock_of_a_keyring_is_exclusive(tmp_path: Path) -> None:
    """It is a file lock, and so excludes all other stores of the key."""
    first, second = (KeyringStore(MemoryKeyring(), folder=tmp_path).of(BASE_URL, CLIENT_ID) for _ in range(2))
    unlock = locked(first)
    assert second.try_lock() is None
    unlock()
    locked(second)()


def test_tokens_are_found_only_with_the_same_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock in another folder or on another machine would let a refresh token be presented twice."""
    entries = MemoryKeyring()
    KeyringStore(entries, folder=tmp_path / "a").of(BASE_URL, CLIENT_ID).write(tokens())
    assert KeyringStore(entries, folder=tmp_path / "b").of(BASE_URL, CLIENT_ID).read() is None
    assert KeyringStore(entries, folder=tmp_path / "a").of(BASE_URL, CLIENT_ID).read() == tokens()
    monkeypatch.setattr(keyring_store, "node", lambda: "another-machine")
    assert KeyringStore(entries, folder=tmp_path / "a").of(BASE_URL, CLIENT_ID).read() is None


def test_damaged_entry_is_ignored(tmp_path: Path) -> None:
    """A worker must be able to go on."""
    entries = MemoryKeyring()
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
