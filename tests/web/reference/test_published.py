"""`/openapi.json` and `/docs`, which anybody may read over HTTP (docs/interface.md section D10)."""

import re
import zlib
from html.parser import HTMLParser

import pytest
from backports import zstd

from tests.web.application import STRANGER_IP, Answer, Application

DESCRIPTION, DOCS = "/openapi.json", "/docs"
BOTH = [DESCRIPTION, DOCS]


def request(app: Application, path: str, **headers: str) -> Answer:
    return app.request("GET", path, headers=[(name.replace("_", "-"), text) for name, text in headers.items()])


@pytest.mark.parametrize("path", BOTH)
def test_a_stranger_may_read_both(app: Application, path: str) -> None:
    """They need no token, and no limit counts their requests."""
    answers = [app.request("GET", path, peer=STRANGER_IP) for _ in range(70)]
    assert {answer.status for answer in answers} == {200}
    assert answers[0].header("ratelimit") is None


@pytest.mark.parametrize("path", BOTH)
def test_both_need_https(app: Application, path: str) -> None:
    assert app.request("GET", path, scheme="http").error == "bad_request"


@pytest.mark.parametrize("path", BOTH)
def test_both_take_get_and_head_only(app: Application, path: str) -> None:
    assert app.request("HEAD", path).status == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = app.request(method, path)
        assert (answer.status, answer.error) == (405, "method_not_allowed")
        assert answer.header("allow") == "GET, HEAD"


@pytest.mark.parametrize("path", BOTH)
def test_both_are_compressed_on_request(app: Application, path: str) -> None:
    """The content is the same in every coding, and `Vary` tells caches."""
    plain = request(app, path)
    gzipped = request(app, path, accept_encoding="gzip")
    zstandard = request(app, path, accept_encoding="gzip, zstd")
    assert plain.header("content-encoding") is None
    assert gzipped.header("content-encoding") == "gzip"
    assert zstandard.header("content-encoding") == "zstd"
    assert plain.body == zlib.decompress(gzipped.body, 31) == zstd.decompress(zstandard.body)
    for answer in (plain, gzipped, zstandard):
        assert answer.header("content-length") == str(len(answer.body))
        assert answer.header("vary") == "accept-encoding"


@pytest.mark.parametrize("path", BOTH)
def test_an_unchanged_file_is_304(app: Application, path: str) -> None:
    """The request has its entity tag; with another one or none, the file is sent."""
    tag = request(app, path).header("etag")
    assert tag is not None
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        answer = request(app, path, if_none_match=known)
        assert (answer.status, answer.body) == (304, b"")
        assert answer.header("etag") == tag
    assert request(app, path, if_none_match='"other"').status == 200
    assert request(app, path).header("cache-control") == "no-cache", "an old file must not outlive an upgrade"


def test_the_description_is_a_download(app: Application) -> None:
    """A browser saves it under a telling name."""
    answer = request(app, DESCRIPTION)
    assert answer.header("content-type") == "application/json"
    assert answer.header("content-disposition") == 'attachment; filename="stoplist-openapi.json"'
    assert answer.body.endswith(b"}\n")


def test_the_policy_allows_the_pages_style_and_script_only(app: Application) -> None:
    """Each by its hash; no frame around it, no form, no base, no picture from elsewhere."""
    policy = request(app, DOCS).header("content-security-policy") or ""
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert {name: value for name, value in rules.items() if not name.endswith("-src")} == {
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert (rules["default-src"], rules["img-src"]) == ("'none'", "data:")
    for kind in ("style-src", "script-src"):
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", rules[kind])
    assert rules.keys() == {
        "default-src", "style-src", "script-src", "img-src", "base-uri", "form-action", "frame-ancestors",
    }  # fmt: skip


@pytest.mark.parametrize("path", BOTH)
def test_both_have_security_headers(app: Application, path: str) -> None:
    """Browsers send no referrer, and isolate the window."""
    answer = request(app, path)
    assert answer.header("referrer-policy") == "no-referrer"
    assert answer.header("cross-origin-opener-policy") == "same-origin"


class Outline(HTMLParser):
    """The ids, links, heading levels, attributes and code of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.levels: list[int] = []
        self.attributes: set[str] = set()
        self.code: list[str] = []
        self._in_code = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.attributes |= known.keys()
        if known.get("id"):
            self.ids.append(str(known["id"]))
        if tag == "a":
            self.links.append(str(known["href"]))
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "pre":
            self._in_code = True
            self.code.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_code = self._in_code and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._in_code:
            self.code[-1] += data


@pytest.fixture
def outline(app: Application) -> Outline:
    return Outline(request(app, DOCS).body.decode())


def test_every_link_of_the_page_has_a_target(outline: Outline) -> None:
    """An id that occurs once; the one external link is to the description."""
    assert len(outline.ids) == len(set(outline.ids))
    assert {link for link in outline.links if not link.startswith("#")} == {DESCRIPTION}
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)


def test_no_heading_level_is_skipped(outline: Outline) -> None:
    """Screen readers navigate by headings: one of the first level, and each next at most one deeper."""
    assert outline.levels.count(1) == 1
    assert outline.levels[0] == 1
    assert all(next_ <= level + 1 for level, next_ in zip(outline.levels, outline.levels[1:], strict=False))


def test_no_element_has_an_inline_style_or_handler(outline: Outline) -> None:
    """The policy would block them."""
    assert not {name for name in outline.attributes if name == "style" or name.startswith("on")}


def test_the_page_shows_every_operation_with_its_samples(app: Application, outline: Outline) -> None:
    """Curl and Python are exactly as in the description, each operation under a heading with a link."""
    document = request(app, DESCRIPTION).json()
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert len(operations) == 7
    for one in operations:
        assert one["operationId"] in outline.ids
        assert f"#{one['operationId']}" in outline.links
        samples = one["x-codeSamples"]
        assert {sample["lang"] for sample in samples} == {"Shell", "Python"}
        assert {sample["source"] for sample in samples} <= set(outline.code)


def test_the_page_shows_every_refusal(app: Application, outline: Outline) -> None:
    """Each code has a target for links."""
    for path, methods in request(app, DESCRIPTION).json()["paths"].items():
        kind = "token-error" if path == "/oauth/token" else "error"
        for one in methods.values():
            for status, answer in one["responses"].items():
                if status != "200":
                    codes = answer["content"]["application/json"]["examples"]
                    assert {f"{kind}-{code}" for code in codes} <= set(outline.ids)
