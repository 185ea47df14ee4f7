"""The message catalogues are complete, and the language is the reader's."""

import re
import string

import msgspec
import pytest

from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.links.languages import LANGUAGES, texts_for
from tests.web.links.clicks import Sender, text_of

ENGLISH = LANGUAGES["en"]


def flat(texts: object) -> dict[str, str]:
    """Return every text by its name; those by channel have two parts."""
    found: dict[str, str] = {}
    for name, value in msgspec.structs.asdict(texts).items():  # type: ignore[arg-type]
        if isinstance(value, dict):
            found |= {f"{name}.{channel}": text for channel, text in value.items()}
        else:
            found[name] = value
    return found


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_there_are_the_eight_languages() -> None:
    assert sorted(LANGUAGES) == ["de", "en", "es", "fr", "it", "nl", "pl", "pt"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_is_complete(language: str) -> None:
    """Each text is there, names the same things as in English, and is no copy of the English one."""
    english, texts = flat(ENGLISH), flat(LANGUAGES[language])
    assert texts.keys() == english.keys()
    assert {name.partition(".")[2] for name in texts if "." in name} == set(CHANNELS)
    for name, text in texts.items():
        assert text.strip() == text != "", name
        assert names_in(text) == names_in(english[name]), name
        assert not re.search(r"[<>&\"]", text), name
    if language != "en":
        copies = {name for name in texts if texts[name] == english[name]}
        assert copies <= {"direction"}
    assert (texts["language"], texts["direction"]) == (language, "ltr")


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("de", "de"),
        ("DE-at", "de"),
        ("ja, de;q=0.5, en;q=0.4", "de"),
        ("en;q=0.4, fr ; q=0.9", "fr"),
        ("ja", "en"),
        ("*;q=0.5, pl;q=0.1", "en"),
        ("pl;q=0", "en"),
        ("pl;q=2, nonsense;;", "en"),
        ("pt-BR,pt;q=0.9,en-US;q=0.8", "pt"),
        ("x" * 10_000, "en"),
        ("\xff\xfe", "en"),
    ],
)
def test_the_language_is_the_most_preferred_of_ours(header: str, language: str) -> None:
    assert texts_for(header.encode("latin-1")).language == language


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_is_in_its_language(sender: Sender, language: str) -> None:
    """It says so to screen readers and caches."""
    path = sender.link(group_id=sender.group_id)
    answer = sender.get(path, language=language)
    assert f'<html lang="{language}" dir="ltr">' in answer.body.decode()
    assert answer.header("content-language") == language
    assert answer.header("vary") == "accept-language"
    assert LANGUAGES[language].ask in text_of(answer)
    one_click = sender.app.request("POST", path, headers=[("accept-language", language)])
    assert one_click.body.decode().strip() == LANGUAGES[language].one_click
