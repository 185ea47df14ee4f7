"""Uploads files on the pages, and lets a server work on them."""

from typing import Any

from stoplist.lists.uploads.model import UploadLimits
from stoplist.lists.uploads.worker import ImportWorker
from stoplist.staff.rights import current_person
from stoplist.unsubscribes.model import OptOutStores
from tests.web.admin.pages import Browser, Form, PageResponse, Pages
from tests.web.application import Answer

BOUNDARY = "----boundary of a test"
CONTENT_TYPE = ("content-type", f'multipart/form-data; boundary="{BOUNDARY}"')


def form_body(fields: dict[str, str], file: bytes, *, name: str = "list.csv") -> bytes:
    """Return a form with a file, as a browser sends it."""
    parts = [
        *(f'Content-Disposition: form-data; name="{field}"\r\n\r\n{value}'.encode() for field, value in fields.items()),
        f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/csv\r\n\r\n'.encode()
        + file,
    ]
    return b"".join(b"--%b\r\n%b\r\n" % (BOUNDARY.encode(), part) for part in parts) + f"--{BOUNDARY}--\r\n".encode()


def send(
    browser: Browser, path: str, body: bytes, *headers: tuple[str, str], site: str = "same-origin", **options: Any
) -> Answer:
    """Post a form with a file."""
    return browser.request("POST", path, CONTENT_TYPE, ("sec-fetch-site", site), *headers, body=body, **options)


def uploaded(browser: Browser, slug: str, file: bytes, *, channel: str = "email", **fields: str) -> PageResponse:
    """Upload a file, and return the page of its import."""
    answer = send(browser, f"/unsubscribes/{slug}/{channel}/import", form_body({"target": "all"} | fields, file))
    assert answer.status == 303, answer.body
    location = next(value for name, value in answer.headers if name == "location")
    return browser.get(location)


def work(pages: Pages, *, max_mb: int = 2) -> None:
    """Let a server do what waits."""
    app = pages.app
    stores = OptOutStores(database=app.database, clock=app.clock, secret_keys=())

    async def find_actor(kind: str, actor_id: str) -> Any:
        return await current_person(app.database, actor_id)

    app.run(ImportWorker(stores, UploadLimits.of_megabytes(max_mb), find_actor).finish())


def form_to(page: PageResponse, end: str) -> Form:
    """Return the only form whose path ends so."""
    (found,) = [form for form in page.forms if form.action.endswith(end)]
    return found


def here(page: PageResponse) -> str:
    """Return the path of the import that a page shows."""
    return next(form.action for form in page.forms if form.action.startswith("/settings/imports/")).rsplit("/", 1)[0]


def checked(pages: Pages, browser: Browser, page: PageResponse, **choices: str) -> PageResponse:
    """Let a server check the file, and return the page with the counts."""
    path = here(page)
    browser.follow(browser.send(form_to(page, "/options"), check="yes", **choices))
    work(pages)
    return browser.get(path)


def imported(pages: Pages, browser: Browser, slug: str, file: bytes) -> PageResponse:
    """Import a file to its end."""
    page = checked(pages, browser, uploaded(browser, slug, file))
    path = here(page)
    browser.follow(browser.send(form_to(page, "/start")))
    work(pages)
    return browser.get(path)
