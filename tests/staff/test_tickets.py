"""Tickets hold the person, the time of expiry and a mark of the password, and cannot be forged."""

from hypothesis import given
from hypothesis import strategies as st

from stoplist.staff.tickets import TICKET_TTL_MS, make_ticket, password_mark, read_ticket

OLD, NEW = "the key of last year, which still verifies", "the key of this year, which signs tickets"
NOW = 1_800_000_000_000


@given(st.integers(0, 2**63 - 1), st.text(max_size=20), st.integers(0, 2**50))
def test_a_ticket_can_be_read_until_it_expires(person_id: int, password_hash: str, now_ms: int) -> None:
    """To the millisecond."""
    ticket = make_ticket([NEW], person_id=person_id, password_hash=password_hash, now_ms=now_ms)
    assert read_ticket([NEW], ticket, now_ms=now_ms + TICKET_TTL_MS - 1) == (person_id, password_mark(password_hash))
    assert read_ticket([NEW], ticket, now_ms=now_ms + TICKET_TTL_MS) is None


def test_the_first_key_signs_and_all_verify() -> None:
    """A key can therefore be replaced while people sign in."""
    ticket = make_ticket([OLD], person_id=1, password_hash="x", now_ms=NOW)
    assert read_ticket([NEW, OLD], ticket, now_ms=NOW) is not None
    assert read_ticket([NEW], ticket, now_ms=NOW) is None
    assert read_ticket([OLD], make_ticket([NEW, OLD], person_id=1, password_hash="x", now_ms=NOW), now_ms=NOW) is None


@given(st.text(max_size=100) | st.text("AZaz09-_", min_size=86, max_size=86))
def test_any_other_text_is_no_ticket(text: str) -> None:
    assert read_ticket([NEW], text, now_ms=NOW) is None


def test_a_password_mark_reveals_nothing_of_the_password() -> None:
    """The mark is half of a hash of a hash."""
    assert len(password_mark("$argon2id$…")) == 16
    assert password_mark("one") != password_mark("two")
