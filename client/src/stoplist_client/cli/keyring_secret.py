"""Keeps the secret of a key in the operating system's keyring, beside the tokens of KeyringStore."""

from contextlib import suppress
from importlib import import_module

from stoplist_client.cli.exit_status import Failed
from stoplist_client.secret import Secret
from stoplist_client.tokens.keyring_store import SERVICE, Keyring


def read(base_url: str, client_id: str) -> Secret:
    """Return the secret. Raises Failed if the keyring has none or does not answer."""
    try:
        text = _keyring().get_password(SERVICE, _entry(base_url, client_id))
    except Failed:
        raise
    except Exception as failure:  # keyring backends raise errors of any class, with messages that are not ours
        text, kind = None, f" ({type(failure).__name__})"
    else:
        kind = ""
    if text is None:
        raise Failed(f"The keyring did not return the secret of this key{kind}: unlock the keyring, or log in again.")
    return Secret(text)


def store(base_url: str, client_id: str, secret: Secret) -> None:
    """Store the secret, and read it back. Raises Failed if the keyring did not keep it."""
    try:
        _keyring().set_password(SERVICE, _entry(base_url, client_id), secret.reveal())
        is_kept = _keyring().get_password(SERVICE, _entry(base_url, client_id)) == secret.reveal()
        kind = ""
    except Failed:
        raise
    except Exception as failure:  # as above
        is_kept, kind = False, f" ({type(failure).__name__})"
    if not is_kept:
        raise Failed(
            f"The keyring did not keep the secret{kind}: set up a keyring (`keyring diagnose` shows the current one), "
            "or log in without --keyring."
        )


def forget(base_url: str, client_id: str) -> None:
    """Delete the secret from the keyring, if it is there."""
    with suppress(Exception):  # each backend raises its own error for an entry that does not exist
        _keyring().delete_password(SERVICE, _entry(base_url, client_id))


def _entry(base_url: str, client_id: str) -> str:
    return f"secret of {client_id} at {base_url}"


def _keyring() -> Keyring:
    try:
        keyring: Keyring = import_module("keyring").get_keyring()
    except ImportError:
        raise Failed("--keyring needs an extra package: pip install 'stoplist-client[keyring]'.") from None
    return keyring
