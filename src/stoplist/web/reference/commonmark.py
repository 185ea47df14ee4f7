"""Renders the part of CommonMark that the description uses: headings, paragraphs, lists, code and bold text."""

import re

from markupsafe import Markup, escape

_ITEM = re.compile(r"^(?:- |[0-9]+\. )", re.MULTILINE)
_SINGLE_LETTER_HYPHEN = re.compile(r"(?<=\b[A-Za-z])-(?=[a-z])")
_MARKED = re.compile(rf"`([^`]+)`|\*\*([^*]+)\*\*|{_SINGLE_LETTER_HYPHEN.pattern}")
_HEADING = "## "


def render(text: str) -> Markup:
    """Return the text as HTML, its headings, all of the second level, with links."""
    return Markup("\n").join(_block(block) for block in text.strip().split("\n\n"))


def slug(title: str) -> str:
    """Return the fragment of a link to this heading."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def headings(text: str) -> list[str]:
    """Return the headings of the text, in order."""
    return [block.removeprefix(_HEADING) for block in text.strip().split("\n\n") if block.startswith(_HEADING)]


def unbroken(text: str) -> str:
    """Return the text without line breaks after a single letter and a hyphen, as in `e-mail`."""
    return _SINGLE_LETTER_HYPHEN.sub("\N{NON-BREAKING HYPHEN}", text)


def _block(block: str) -> Markup:
    if block.startswith(_HEADING):
        return _heading(block.removeprefix(_HEADING))
    if _ITEM.match(block):
        items = Markup("\n").join(Markup("<li>{}</li>").format(_inline(item)) for item in _ITEM.split(block)[1:])
        container = Markup("<ul>\n{}\n</ul>") if block.startswith("- ") else Markup("<ol>\n{}\n</ol>")
        return container.format(items)
    return Markup("<p>{}</p>").format(_inline(block))


def _heading(title: str) -> Markup:
    anchor = Markup('<a class="anchor" href="#{0}" aria-label="Link to: {1}">#</a>').format(slug(title), title)
    return Markup('<h2 id="{0}">{1} {2}</h2>').format(slug(title), title, anchor)


def _inline(text: str) -> Markup:
    """Render code, bold text and unbroken words; a line break becomes a space."""
    return Markup(_MARKED.sub(_element, str(escape(text.strip().replace("\n", " ")))))  # noqa: S704


def _element(match: re.Match[str]) -> str:
    code, bold = match.groups()
    if code:
        return f"<code>{code}</code>"
    return f"<strong>{bold}</strong>" if bold else "\N{NON-BREAKING HYPHEN}"
