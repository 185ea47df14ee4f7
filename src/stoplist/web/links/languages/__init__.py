"""The languages of the page behind an opt-out link, and the choice among them.

Source: docs/interface.md section D15; RFC 9110 section 12.5.4 (Accept-Language).
"""

import re
from functools import lru_cache

from stoplist.web.links.languages import de, en, es, fr, it, nl, pl, pt
from stoplist.web.links.texts import Texts

LANGUAGES: dict[str, Texts] = {
    texts.language: texts for texts in (en.TEXTS, de.TEXTS, fr.TEXTS, es.TEXTS, it.TEXTS, pt.TEXTS, nl.TEXTS, pl.TEXTS)
}
_DEFAULT = LANGUAGES["en"]

_RANGE = re.compile(
    r"\s*([A-Za-z]{1,8}|\*)(?:-[A-Za-z0-9]{1,8})*\s*(?:;\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*)?", re.ASCII
)
_MAX_BYTES = 500


def texts_for(accept_language: bytes) -> Texts:
    """Return the texts in the language that the header prefers; English if there are no texts in any of its languages."""
    return _texts_for(accept_language[:_MAX_BYTES])


@lru_cache(maxsize=1024)
def _texts_for(accept_language: bytes) -> Texts:
    best, best_quality = _DEFAULT, 0.0
    for part in accept_language.decode("latin-1").split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            continue
        quality = 1.0 if match[2] is None else float(match[2])
        texts = _DEFAULT if match[1] == "*" else LANGUAGES.get(match[1].lower())
        if texts is not None and quality > best_quality:
            best, best_quality = texts, quality
    return best
