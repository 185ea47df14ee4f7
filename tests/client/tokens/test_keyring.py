"""Tokens in the keyring of the operating system; what stands for it here keeps its entries in a dictionary."""

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


class Entries(KeyringBackend):
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


class Locked(Entries):
    """A keyring whose owner did not unlock it."""

    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError("the session bus says no")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise PasswordSetError(f"cannot set {password}")


class Forgetful(Entries):
    """A keyring that takes the first entry, and then no other."""

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held.setdefault((service, username), password)


@pytest.fixture
def entries() -> Iterator[Entries]:
    """The keyring that the package `keyring` finds."""
    before = keyring.get_keyring()
    entries = Entries()
    keyring.set_keyring(entries)
    yield entries
    keyring.set_keyring(before)


def test_tokens_are_kept_in_the_keyring_of_the_system(entries: Entries, client_folder: Path) -> None:
    """Under the client's name, one entry a key; no file holds any of it."""
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


def test_forgotten_tokens_leave_the_keyring(entries: Entries) -> None:
    """And it tells whether there were any."""
    store = KeyringStore().of(BASE_URL, CLIENT_ID)
    assert not store.forget()
    store.write(tokens())
    assert store.forget()
    assert entries.held == {}


def test_the_lock_of_a_keyring_is_exclusive(tmp_path: Path) -> None:
    """Over all stores of that key, since it is the lock of a file."""
    first, second = (KeyringStore(Entries(), folder=tmp_path).of(BASE_URL, CLIENT_ID) for _ in range(2))
    unlock = locked(first)
    assert second.try_lock() is None
    unlock()
    locked(second)()


def test_tokens_are_found_by_those_alone_who_share_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a lock in another folder, or on another machine of a roaming user, there is nothing to present twice."""
    entries = Entries()
    KeyringStore(entries, folder=tmp_path / "a").of(BASE_URL, CLIENT_ID).write(tokens())
    assert KeyringStore(entries, folder=tmp_path / "b").of(BASE_URL, CLIENT_ID).read() is None
    assert KeyringStore(entries, folder=tmp_path / "a").of(BASE_URL, CLIENT_ID).read() == tokens()
    monkeypatch.setattr(keyring_store, "node", lambda: "another-machine")
    assert KeyringStore(entries, folder=tmp_path / "a").of(BASE_URL, CLIENT_ID).read() is None


def test_an_entry_that_is_no_tokens_counts_as_nothing(tmp_path: Path) -> None:
    """A worker must be able to go on."""
    entries = Entries()
    store = KeyringStore(entries, folder=tmp_path).of(BASE_URL, CLIENT_ID)
    store.write(tokens())
    entries.held = dict.fromkeys(entries.held, "something else")
    assert store.read() is None
    store.write(tokens())
    assert store.read() == tokens()


@pytest.mark.parametrize("keyring_of_the_system", [fail.Keyring, Locked])
def test_a_keyring_that_does_not_work_is_told_with_the_remedy(
    tmp_path: Path, keyring_of_the_system: type[KeyringBackend]
) -> None:
    """Its own text stays away: it may repeat what it was given."""
    store = KeyringStore(keyring_of_the_system(), folder=tmp_path).of(BASE_URL, CLIENT_ID)
    for act in (store.read, lambda: store.write(tokens())):
        with pytest.raises(TokenStoreError, match=r"keyring diagnose.*FileStore") as refused:
            act()
        assert "svc_" not in str(refused.value)


def test_what_a_keyring_does_not_give_back_was_not_written(tmp_path: Path) -> None:
    """A mark that is not there afterwards would let the refresh token be sent again."""
    discarding = null.Keyring()  # type: ignore[no-untyped-call]
    nothing = KeyringStore(discarding, folder=tmp_path).of(BASE_URL, CLIENT_ID)
    with pytest.raises(TokenStoreError, match="did not keep"):
        nothing.write(tokens())
    store: TokenKeyring = KeyringStore(Forgetful(), folder=tmp_path).of(BASE_URL, CLIENT_ID)
    store.write(tokens())
    with pytest.raises(TokenStoreError, match="did not keep"):
        store.write(tokens(is_presented=True))


def test_the_entry_fits_where_keyrings_are_small() -> None:
    """Windows takes 2560 bytes of UTF-16; the service's tokens have 56 characters."""
    long = tokens()
    room = 2 * (56 - len(long.access_token) + 56 - len(long.refresh_token))
    assert 2 * len(encode_tokens(long).decode()) + room < 2560


def test_without_the_package_the_text_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(keyring_store, "import_module", missing)
    with pytest.raises(ConfigurationError, match=r"pip install 'stoplist-client\[keyring\]'"):
        KeyringStore()
    monkeypatch.setattr(keyring_store, "import_module", importlib.import_module)
    KeyringStore()
