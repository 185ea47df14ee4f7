"""What the limit store says of itself, for `stoplist doctor`: servers ask it nothing but to decide."""

from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

_PATIENCE_S = 1.0


async def read_store_info(url: str) -> dict[str, str] | None:
    """The fields of its INFO, such as `role` and `maxmemory_policy`; None where it gives none or does not answer.

    `url` must be one that `LimitStore.at` takes.
    """
    client = Redis.from_url(url, socket_timeout=_PATIENCE_S, socket_connect_timeout=_PATIENCE_S)
    with suppress(RedisError, OSError, TimeoutError):
        async with client:
            return {name: str(value) for name, value in (await client.info()).items()}
    return None
