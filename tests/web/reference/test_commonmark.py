"""Rendering the part of CommonMark that the description uses."""

import re

import pytest

from stoplist.web.reference import openapi
from stoplist.web.reference.commonmark import headings, render, slug, unbroken


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("One\nline.", "<p>One line.</p>"),
        ("One.\n\nTwo.", "<p>One.</p>\n<p>Two.</p>"),
        ("- one\n- two\n  goes on", "<ul>\n<li>one</li>\n<li>two   goes on</li>\n</ul>"),
        ("1. one\n2. two", "<ol>\n<li>one</li>\n<li>two</li>\n</ol>"),
        ("`a < b` and **bold**", "<p><code>a &lt; b</code> and <strong>bold</strong></p>"),
        ("<script>&\"'", "<p>&lt;script&gt;&amp;&#34;&#39;</p>"),
        ("**<b>**", "<p><strong>&lt;b&gt;</strong></p>"),
        ("an e-mail", "<p>an e\N{NON-BREAKING HYPHEN}mail</p>"),
        ("`e-mail`", "<p><code>e-mail</code></p>"),
    ],
)
def test_each_form_becomes_its_element(text: str, html: str) -> None:
    """All other text is escaped."""
    assert render(text) == html


def test_a_heading_can_be_linked_to() -> None:
    """Its words make the fragment; a screen reader gets a label for the link."""
    assert render("## Which act counts?") == (
        '<h2 id="which-act-counts">Which act counts? '
        '<a class="anchor" href="#which-act-counts" aria-label="Link to: Which act counts?">#</a></h2>'
    )
    assert headings("One.\n\n## Two\n\nThree.\n\n## Four") == ["Two", "Four"]
    assert slug("A  B-c!") == "a-b-c"


def test_no_line_ends_after_a_single_letter_and_hyphen() -> None:
    """Other hyphens may end a line."""
    assert unbroken("e-mail opt-outs") == "e\N{NON-BREAKING HYPHEN}mail opt-outs"


def test_the_description_uses_no_other_form() -> None:
    """No mark is left on the page: no star, no backtick, no heading of another level."""
    html = str(render(openapi.document("https://stoplist.example")["info"]["description"]))
    text = re.sub(r"<code>.*?</code>", "", html)
    assert not re.search(r"[`*]|^#|\[[^]]*\]\(|^\s*[-+>|]", text, re.MULTILINE)
