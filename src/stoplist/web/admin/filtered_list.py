"""Lists with filters: the filters as fields of a form, a period, and the links to other pages."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from stoplist.clock import DAY_MS
from stoplist.errors import Forbidden, Missing, Refused
from stoplist.web.admin.page_request import PageRequest
from stoplist.web.admin.times import read_day_ms

Page = TypeVar("Page")


class FilteredList(NamedTuple, Generic[Page]):
    """A page of a list, None for an invalid filter; the status of the answer, and the filters that are set."""

    path: str
    page: Page | None
    status: int
    set_filters: dict[str, str]
    context: dict[str, Any]

    def url(self, path: str = "", **query: str) -> str:
        """Return the address of the list, or of another path, with the filters that are set."""
        query = self.set_filters | query
        return f"{path or self.path}?{urlencode(query)}" if query else path or self.path


async def read_list(
    request: PageRequest, path: str, filters: Sequence[str], read: Callable[[PageRequest], Awaitable[Page]]
) -> FilteredList[Page]:
    """Return the page of the list that `read` finds; the form says why a filter was refused.

    `context` has what every template of such a list shows.
    """
    status, page = 200, None
    try:
        page = await read(request)
    except (Missing, Forbidden):
        raise
    except Refused as refusal:
        request.refusal, status = refusal, 422
    texts = {name: request.query.text(name) for name in filters}
    found = FilteredList(path, page, status, {name: text for name, text in texts.items() if text}, {})
    found.context.update(
        filters=texts,
        is_filtered=bool(found.set_filters),
        is_first=not request.query.text("before"),
        newest=found.url(),
    )
    return found


def read_period(request: PageRequest) -> tuple[int | None, int | None]:
    """Return the days `from` and `until` of the query as two times (ms UTC), the first of which is inclusive.

    Raise Refused for a malformed day, and for an end before the start.
    """
    first_ms = read_day_ms(request.query.text("from"), field="from")
    last_ms = read_day_ms(request.query.text("until"), field="until")
    if first_ms is not None and last_ms is not None and last_ms < first_ms:
        raise Refused("The end date is before the start date.", field="until")
    return first_ms, None if last_ms is None else last_ms + DAY_MS
