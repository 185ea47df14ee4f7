"""The secret of a key in the keyring of the operating system, beside the tokens that KeyringStore keeps there."""

from contextlib import suppress
from importlib import import_module

from stoplist_client.cli.exit_status import Failed
from stoplist_client.secret import Secret
from stoplist_client.tokens.keyring_store import SERVICE, Keyring


def read(base_url: str, client_id: str) -> Secret:
    """The secret; Failed where the keyring has none, or does not answer."""
    try:
        text = _keyring().get_password(SERVICE, _entry(base_url, client_id))
    except Failed:
        raise
    except Exception as failure:  # an edge: backends raise what they like, with texts of their own
        text, kind = None, f" ({type(failure).__name__})"
    else:
        kind = ""
    if text is None:
        raise Failed(f"The keyring does not give the secret of this key{kind}: unlock it, or log in again.")
    return Secret(text)


def store(base_url: str, client_id: str, secret: Secret) -> None:
    """The keyring has the secret, and gives it back; else Failed."""
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
            f"The keyring did not keep the secret{kind}: set it up (`keyring diagnose` tells more), or log in without "
            "--keyring."
        )


def forget(base_url: str, client_id: str) -> None:
    """The keyring does not have the secret any more."""
    with suppress(Exception):  # it may not be there, and each backend says so in its way
        _keyring().delete_password(SERVICE, _entry(base_url, client_id))


def _entry(base_url: str, client_id: str) -> str:
    return f"secret of {client_id} at {base_url}"


def _keyring() -> Keyring:
    try:
        keyring: Keyring = import_module("keyring").get_keyring()
    except ImportError:
        raise Failed("--keyring needs the extra: pip install 'stoplist-client[keyring]'.") from None
    return keyring
