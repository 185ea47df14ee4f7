"""Makes the client of a profile, with its secret and its token store."""

import time

from stoplist_client.cli import keyring_secret
from stoplist_client.cli.exit_status import Failed
from stoplist_client.cli.profile import Profile
from stoplist_client.client import Client
from stoplist_client.secret import Secret
from stoplist_client.tokens.keyring_store import KeyringStore, TokenKeyring
from stoplist_client.tokens.stores import FileStore, MemoryStore, TokenFile

_LOCK_TIMEOUT_S = 30.0


def open_client(profile: Profile) -> Client:
    """Return a client for the profile, which shares its tokens with all other commands."""
    secret = profile.client_secret or keyring_secret.read(profile.base_url, profile.client_id)
    return make_client(profile, secret, KeyringStore() if profile.is_in_keyring else FileStore())


def make_client(profile: Profile, secret: Secret, store: FileStore | KeyringStore | MemoryStore) -> Client:
    """Return a client for the profile, with this secret and token store."""
    return Client(
        profile.base_url,
        client_id=profile.client_id,
        client_secret=secret.reveal(),
        org_slug=profile.org_slug,
        group_id=profile.group_id,
        store=store,
        ca_file=profile.ca_file,
    )


def forget_key(profile: Profile) -> None:
    """Delete the tokens of the profile's key, and its secret if it is in the keyring."""
    store: TokenFile | TokenKeyring
    if profile.is_in_keyring:
        store = KeyringStore().of(profile.base_url, profile.client_id)
    else:
        store = FileStore().of(profile.base_url, profile.client_id)
    deadline_s = time.monotonic() + _LOCK_TIMEOUT_S
    while (unlock := store.try_lock()) is None:
        if time.monotonic() > deadline_s:
            raise Failed("Another process is renewing the tokens of this key: try again in a moment.")
        time.sleep(0.05)
    try:
        store.forget()
    finally:
        unlock()
    if profile.is_in_keyring:
        keyring_secret.forget(profile.base_url, profile.client_id)
