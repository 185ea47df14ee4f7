"""As much of CommonMark as the description is written in: headings, paragraphs, lists, code and bold words."""

import re

from markupsafe import Markup, escape

_ITEM = re.compile(r"^(?:- |[0-9]+\. )", re.MULTILINE)
_SHORT = re.compile(r"(?<=\b[A-Za-z])-(?=[a-z])")
_MARKED = re.compile(rf"`([^`]+)`|\*\*([^*]+)\*\*|{_SHORT.pattern}")
_HEADING = "## "


def render(text: str) -> Markup:
    """The text as HTML. Its headings, all of the second level, can be linked to."""
    return Markup("\n").join(_block(block) for block in text.strip().split("\n\n"))


def slug(title: str) -> str:
    """What a heading is called in a link."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def headings(text: str) -> list[str]:
    """The headings of the text, in order."""
    return [block.removeprefix(_HEADING) for block in text.strip().split("\n\n") if block.startswith(_HEADING)]


def unbroken(text: str) -> str:
    """The text, in which no line ends after a single letter and a hyphen: `e-mail` stays whole."""
    return _SHORT.sub("\N{NON-BREAKING HYPHEN}", text)


def _block(block: str) -> Markup:
    if block.startswith(_HEADING):
        return _heading(block.removeprefix(_HEADING))
    if _ITEM.match(block):
        items = Markup("\n").join(Markup("<li>{}</li>").format(_inline(item)) for item in _ITEM.split(block)[1:])
        around = Markup("<ul>\n{}\n</ul>") if block.startswith("- ") else Markup("<ol>\n{}\n</ol>")
        return around.format(items)
    return Markup("<p>{}</p>").format(_inline(block))


def _heading(title: str) -> Markup:
    anchor = Markup('<a class="anchor" href="#{0}" aria-label="Link to: {1}">#</a>').format(slug(title), title)
    return Markup('<h2 id="{0}">{1} {2}</h2>').format(slug(title), title, anchor)


def _inline(text: str) -> Markup:
    """Code, bold words and whole ones; a line break is a space."""
    return Markup(_MARKED.sub(_element, str(escape(text.strip().replace("\n", " ")))))  # noqa: S704


def _element(found: re.Match[str]) -> str:
    code, bold = found.groups()
    if code:
        return f"<code>{code}</code>"
    return f"<strong>{bold}</strong>" if bold else "\N{NON-BREAKING HYPHEN}"
