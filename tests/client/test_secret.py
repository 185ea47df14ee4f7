"""A Secret shows its text only if it is asked for."""

import copy
import pickle

import pytest
from stoplist_client.secret import Secret

pytestmark = pytest.mark.interpreter

TEXT = "svc_cs_Example1Example2Example3"


def test_secret_is_in_no_text() -> None:
    """No repr, str or format shows it, and no repr of a container."""
    secret = Secret(TEXT)
    shown = f"{secret} {secret!r} {[secret]} {{'secret': {secret}}} %s" % secret
    assert TEXT not in shown
    assert secret.reveal() == TEXT


def test_secret_cannot_be_pickled() -> None:
    """Pickles end up in files and queues."""
    with pytest.raises(TypeError) as refused:
        pickle.dumps(Secret(TEXT))
    with pytest.raises(TypeError):
        copy.copy(Secret(TEXT))
    assert TEXT not in str(refused.value)


def test_secrets_compare_by_their_text() -> None:
    """A Secret of a Secret is the same secret; an empty one is false."""
    assert Secret(Secret(TEXT)) == Secret(TEXT)
    assert Secret(TEXT) != Secret("another")
    assert Secret(TEXT) != TEXT
    assert hash(Secret(TEXT)) == hash(Secret(TEXT))
    assert not Secret("")
