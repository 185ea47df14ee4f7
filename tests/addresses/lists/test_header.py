"""Tests of the header of a list: columns that are found or stated, and headers that are refused."""

import pytest
from stoplist_addresses.lists import ListError

from tests.addresses.lists.reading import AS_OF_MS, addresses, only_part, opened, opt_outs


@pytest.mark.parametrize("name", ["email", "E-mail", "EMAIL_ADDRESS", " Recipient ", '"e mail"'])
def test_usual_names_of_the_address_column(name: str) -> None:
    assert addresses(f"name,{name}\nAnn,ann@example.com\n") == ["ann@example.com"]
    assert addresses(f"{name}\nann@example.com\n") == ["ann@example.com"]


@pytest.mark.parametrize(("channel", "name"), [("sms", "Mobile"), ("sms", "Phone Number"), ("phone", "telephone")])
def test_usual_names_of_phone_columns(channel: str, name: str) -> None:
    assert addresses(f"{name}\n+12025550143\n", channel) == ["+12025550143"]


@pytest.mark.parametrize("stated", ["Kontakt", "kontakt", "2"])
def test_columns_can_be_stated(stated: str) -> None:
    content = "email,Kontakt\nann@example.com,bob@example.com\n"
    assert addresses(content, columns={"address": stated}) == ["bob@example.com"]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("name,town\n", ("name", "town")),
        ("email,status\na@example.com,x\n", ("email", "status")),
        ("contacts\n", ("contacts",)),
        ("", ()),
    ],
)
def test_a_refusal_names_the_columns_that_are_there(content: str, names: tuple[str, ...]) -> None:
    """So that a page can offer them, whatever is wrong with the file."""
    with pytest.raises(ListError) as refused:
        opened(content)
    assert refused.value.header == names


def test_stated_name_makes_a_header_of_one_column() -> None:
    assert addresses("Kontakt\nann@example.com\n", columns={"address": "Kontakt"}) == ["ann@example.com"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("email,mail\n", "Several columns may be address.*email, mail"),
        ("name,town\n", "No column has a usual name for addresses.*name, town"),
        ("email,opt_out_at,unsubscribed_at\n", "Several columns may be occurred_at"),
        ("email,ocurred_at\n", "'ocurred_at' looks like a misspelt occurred_at"),
        ("contacts\n", "neither an address nor a usual name"),
        ("ann@example.com,1700000000\n", "first row looks like an address"),
        ('{"email": "ann@example.com"}\n', "is JSON"),
    ],
)
def test_unclear_header_is_refused(content: str, text: str) -> None:
    with pytest.raises(ListError, match=text):
        opened(content, as_of_ms=AS_OF_MS)


def test_messages_repeat_no_address_of_a_first_row() -> None:
    with pytest.raises(ListError) as refusal:
        opened("ann@example.com;Ann\n", as_of_ms=AS_OF_MS)
    assert "ann" not in str(refusal.value).lower()


def test_unknown_field_is_wrong_usage() -> None:
    with pytest.raises(ListError, match="address, occurred_at, reason or source") as refusal:
        opened("email\n", columns={"status": "email"}, as_of_ms=AS_OF_MS)
    assert refusal.value.is_usage


def test_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(ListError, match=r"No column has the name 'mail'\. The columns are: email, name\."):
        opened("email,name\n", columns={"address": "mail"}, as_of_ms=AS_OF_MS)


@pytest.mark.parametrize("name", ["status", "Email Status", "subscribed", "is_unsubscribed", "consent", "opt-in"])
def test_status_column_is_refused_with_its_values(name: str) -> None:
    with pytest.raises(ListError, match=r"yes \(2\), no \(1\)") as refusal:
        opened(f"email,{name}\na@example.com,yes\nb@example.com,no\nc@example.com, Yes\n", as_of_ms=AS_OF_MS)
    assert (refusal.value.is_usage, refusal.value.option) == (True, "opted_out_when")


def test_stated_values_mean_an_opt_out() -> None:
    content = (
        "email,status,consent\na@example.com, Unsubscribed ,no\nb@example.com,cleaned,no\n"
        "c@example.com,unsubscribed,yes\nd@example.com,subscribed,no\n"
    )
    stated = (("Status", "unsubscribed"), ("status", "CLEANED"), ("consent", "no"))
    part = only_part(content, as_of_ms=AS_OF_MS, opted_out_when=stated)
    assert [each[1] for each in part.opt_outs] == ["a@example.com", "b@example.com"]
    assert (part.not_opted_out, part.bad) == (2, [])


def test_neither_time_column_nor_moment_is_wrong_usage() -> None:
    for content in ("email\nann@example.com\n", "ann@example.com\n"):
        with pytest.raises(ListError, match="Nothing is dated now in silence") as refusal:
            opened(content)
        assert (refusal.value.is_usage, refusal.value.option) == (True, "as_of_ms")


def test_unknown_reasons_are_replaced_and_counted() -> None:
    content = "email,reason\na@example.com, Complaint \nb@example.com,too much\nc@example.com,\nd@example.com,consent\n"
    part = only_part(content, as_of_ms=AS_OF_MS)
    assert [each[3] for each in part.opt_outs] == ["complaint", "import", "import", "import"]
    assert part.reasons_replaced == 2
    assert opt_outs(content, as_of_ms=AS_OF_MS, reason="legal")[1][3] == "legal"


def test_stated_reason_must_be_known() -> None:
    with pytest.raises(ListError, match="bounce, complaint") as refusal:
        opened("ann@example.com\n", as_of_ms=AS_OF_MS, reason="consent")
    assert refusal.value.is_usage


def test_sources_are_cut_and_cleaned_and_counted() -> None:
    content = (
        f'email,source\na@example.com,{"x" * 201}\nb@example.com,"a\n\tb"\nc@example.com, plain \nd@example.com,\n'
    )
    part = only_part(content, as_of_ms=AS_OF_MS, source="list of May")
    assert [each[4] for each in part.opt_outs] == ["x" * 200, "a b", "plain", "list of May"]
    assert part.sources_changed == 2
