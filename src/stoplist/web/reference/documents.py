"""`/openapi.json` and `/docs`, each created on first use, since a start needs neither schemas nor templates.

Source: docs/interface.md section D10.
"""

from stoplist.slicing import yield_to_loop
from stoplist.web.request_context import DOCS_PATH
from stoplist.web.static_files import File, OnDemandFile, make_file

OPENAPI_PATH = "/openapi.json"


def openapi_file(base_url: str) -> OnDemandFile:
    """Return the OpenAPI document as a file to download."""

    async def make() -> File:
        from stoplist.web.reference import openapi  # noqa: PLC0415 - a start needs no schemas

        await yield_to_loop()
        name = b'attachment; filename="stoplist-openapi.json"'
        return make_file(openapi.encoded(base_url), b"application/json", (b"content-disposition", name))

    return OnDemandFile(OPENAPI_PATH, make)


def reference_file(base_url: str) -> OnDemandFile:
    """Return the reference page."""

    async def make() -> File:
        # Import one module at a time, so that no other request has to wait for both.
        from stoplist.web.reference import openapi  # noqa: PLC0415 - a start needs no schemas

        await yield_to_loop()
        from stoplist.web.reference import page  # noqa: PLC0415 - a start needs no templates

        await yield_to_loop()
        rendered = await page.make_page(openapi.document(base_url))
        policy = (b"content-security-policy", rendered.content_security_policy.encode())
        return make_file(rendered.html, b"text/html; charset=utf-8", policy)

    return OnDemandFile(DOCS_PATH, make)
