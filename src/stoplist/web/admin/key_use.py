"""The use of keys, as pages show it."""

from contextlib import suppress

from stoplist.errors import StoreUnavailable
from stoplist.web.admin.page_request import PageRequest

ALARM_SHOWN_MS = 7 * 86_400_000


async def write_use(request: PageRequest) -> None:
    """What this process has seen of the use of keys is there to be shown, not only after the minute is over."""
    with suppress(StoreUnavailable):
        await request.admin.usage.flush(request.database)
