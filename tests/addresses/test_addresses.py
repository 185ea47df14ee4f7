"""The package as a whole: its vectors, its README, the cost of its import, and its speed."""

import doctest
import gc
import subprocess
import sys
import time

import pytest
import stoplist_addresses
from stoplist_addresses import RULES, AddressError, Vector, canonical_email, canonical_phone, load_vectors
from stoplist_addresses.email import EmailFault
from stoplist_addresses.phone import PhoneFault

from tests.constants import ROOT

pytestmark = pytest.mark.interpreter

README = ROOT / "addresses" / "README.md"


def outcome(channel: str, text: str) -> tuple[str | None, str | None]:
    """Return canonical form and error, of which one is None."""
    try:
        return RULES[channel](text), None
    except AddressError as error:
        return None, str(error)


@pytest.mark.parametrize("vector", load_vectors(), ids=[str(number) for number, _ in enumerate(load_vectors())])
def test_vector_holds(vector: Vector) -> None:
    """Programs in other languages are tested with these vectors."""
    assert outcome(vector.channel, vector.input) == (vector.canonical, vector.error)


def test_vectors_cover_every_error_and_channel() -> None:
    vectors = load_vectors()
    assert {vector.error for vector in vectors} - {None} == {*EmailFault, *PhoneFault}
    assert {vector.channel for vector in vectors} == set(RULES)
    assert len({(vector.channel, vector.input) for vector in vectors}) == len(vectors)
    assert all((vector.canonical is None) != (vector.error is None) for vector in vectors)


def test_each_channel_has_its_rule() -> None:
    assert dict(RULES) == {"email": canonical_email, "sms": canonical_phone, "phone": canonical_phone}


def test_address_error_is_a_value_error() -> None:
    assert issubclass(AddressError, ValueError)


def test_examples_of_the_readme_run() -> None:
    result = doctest.testfile(str(README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted >= 3
    assert result.failed == 0


def test_module_and_wheel_have_the_same_version() -> None:
    assert f'version = "{stoplist_addresses.__version__}"' in README.with_name("pyproject.toml").read_text()


def test_import_loads_no_number_plan() -> None:
    """Loading all of them would take longer than the rest of a start."""
    program = "import sys, stoplist_addresses; print(sum('.data.region_' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"0\n"


LONG = 2_000_000


@pytest.mark.parametrize("channel", ["email", "phone"])
@pytest.mark.parametrize(
    "text",
    [
        *(
            "a" * LONG,
            "@" * LONG,
            " " * LONG,
            "+" * LONG,
            "1" * LONG,
            "+1" + "- " * LONG,
            "a@" + "\u00ad" * LONG,
            "\ud800" * LONG,
        ),
        "a@" + "\u0316\u0300" * 510,
        "\u0316\u0300" * 127 + "@a.de",
        "a@" + "\ufdfa" * 1000,
        "a@" + "é." * 120 + "é",
        "a@" + ("\u0628\u200c" * 25 + ".") * 4 + "de",
        "a@" + "xn--" + "9" * 59 + ".de",
        "!" * 254,
        "a." * 127,
        "a@" + "a-" * 126,
        "a@" + "a." * 126,
        "a@-" + "a-." * 83,
    ],
    ids=lambda text: ascii(text[:4]),
)
def test_no_input_takes_long(channel: str, text: str) -> None:
    """A batch contains ten thousand addresses, and a hostile one must cost little more than another."""
    outcome(channel, text)
    gc.disable()  # what the tests before have left is no cost of this input
    try:
        started = time.thread_time()
        outcome(channel, text)
        took = time.thread_time() - started
    finally:
        gc.enable()
    assert took < 0.25
