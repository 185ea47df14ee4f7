"""`/openapi.json` and `/docs`, each made on first use: a start needs neither schemas nor templates.

Source: docs/interface.md section D10.
"""

from stoplist.slicing import let_others_run
from stoplist.web.request_context import DOCS_PATH
from stoplist.web.static_files import File, Published, file

OPENAPI_PATH = "/openapi.json"


def description(base_url: str) -> Published:
    """The OpenAPI document, as a file to download."""

    async def make() -> File:
        from stoplist.web.reference import openapi  # noqa: PLC0415 - a start needs no schemas

        await let_others_run()
        name = b'attachment; filename="stoplist-openapi.json"'
        return file(openapi.encoded(base_url), b"application/json", (b"content-disposition", name))

    return Published(OPENAPI_PATH, make)


def reference(base_url: str) -> Published:
    """The page for people."""

    async def make() -> File:
        # One at a time, so that no other request waits for both.
        from stoplist.web.reference import openapi  # noqa: PLC0415 - a start needs no schemas

        await let_others_run()
        from stoplist.web.reference import page  # noqa: PLC0415 - a start needs no templates

        await let_others_run()
        made = await page.make_page(openapi.document(base_url))
        policy = (b"content-security-policy", made.content_security_policy.encode())
        return file(made.html, b"text/html; charset=utf-8", policy)

    return Published(DOCS_PATH, make)
