"""A secret shows itself to whoever asks for it, and to nobody else."""

import copy
import pickle

import pytest
from stoplist_client.secret import Secret

pytestmark = pytest.mark.interpreter

TEXT = "svc_cs_Example1Example2Example3"


def test_a_secret_is_in_no_text_that_is_made_of_it() -> None:
    """repr, str, format and what a container prints show nothing of it."""
    secret = Secret(TEXT)
    shown = f"{secret} {secret!r} {[secret]} {{'secret': {secret}}} %s" % secret
    assert TEXT not in shown
    assert secret.reveal() == TEXT


def test_a_secret_can_not_be_pickled() -> None:
    """What is pickled lies in files and queues, where nobody looks for a secret."""
    with pytest.raises(TypeError) as refused:
        pickle.dumps(Secret(TEXT))
    with pytest.raises(TypeError):
        copy.copy(Secret(TEXT))
    assert TEXT not in str(refused.value)


def test_secrets_compare_by_what_they_hold() -> None:
    """A secret of a secret is the same secret; an empty one is false."""
    assert Secret(Secret(TEXT)) == Secret(TEXT)
    assert Secret(TEXT) != Secret("another")
    assert Secret(TEXT) != TEXT
    assert hash(Secret(TEXT)) == hash(Secret(TEXT))
    assert not Secret("")
