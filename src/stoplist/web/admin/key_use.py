"""Key usage and positions of readers, for the pages that show them."""

from contextlib import suppress

from stoplist.clock import DAY_MS
from stoplist.errors import StoreUnavailable
from stoplist.web.admin.page_request import PageRequest

ALARM_SHOWN_MS = 7 * DAY_MS


async def flush_usage(request: PageRequest) -> None:
    """Write the key usage that this process has counted, which it otherwise writes once a minute."""
    with suppress(StoreUnavailable):
        await request.admin.usage.flush(request.database)


async def flush_positions(request: PageRequest) -> None:
    """Write the positions of readers that this process has noted, which it otherwise writes once a minute."""
    with suppress(StoreUnavailable):
        await request.admin.positions.flush(request.database)
