"""Information that the limit store reports about itself, for `stoplist doctor`. Servers only ask for decisions."""

from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

_TIMEOUT_S = 1.0


async def read_store_info(url: str) -> dict[str, str] | None:
    """Return the fields of its INFO, such as `role` and `maxmemory_policy`; None if there is no answer.

    `url` must be one that `LimitStore.at` accepts.
    """
    client = Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)
    with suppress(RedisError, OSError, TimeoutError):
        async with client:
            return {name: str(value) for name, value in (await client.info()).items()}
    return None
