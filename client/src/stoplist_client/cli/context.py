"""The client of a profile, and where its secret and its tokens are kept."""

import time

from stoplist_client.cli import keyring_secret
from stoplist_client.cli.exit_status import Failed
from stoplist_client.cli.profile import Profile
from stoplist_client.client import Client
from stoplist_client.secret import Secret
from stoplist_client.tokens.keyring_store import KeyringStore, TokenKeyring
from stoplist_client.tokens.stores import FileStore, MemoryStore, TokenFile

_PATIENCE_S = 30.0


def client_of(profile: Profile) -> Client:
    """A client that speaks for the profile, and shares its tokens with every other command."""
    secret = profile.client_secret or keyring_secret.read(profile.base_url, profile.client_id)
    return opened(profile, secret, KeyringStore() if profile.is_in_keyring else FileStore())


def opened(profile: Profile, secret: Secret, store: FileStore | KeyringStore | MemoryStore) -> Client:
    """A client that speaks for the profile, with this secret and this store."""
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
    """Neither the tokens of the profile's key are kept any more, nor its secret in the keyring."""
    store: TokenFile | TokenKeyring
    if profile.is_in_keyring:
        store = KeyringStore().of(profile.base_url, profile.client_id)
    else:
        store = FileStore().of(profile.base_url, profile.client_id)
    deadline_s = time.monotonic() + _PATIENCE_S
    while (unlock := store.try_lock()) is None:
        if time.monotonic() > deadline_s:
            raise Failed("Another process is renewing these tokens: try again in a moment.")
        time.sleep(0.05)
    try:
        store.forget()
    finally:
        unlock()
    if profile.is_in_keyring:
        keyring_secret.forget(profile.base_url, profile.client_id)
