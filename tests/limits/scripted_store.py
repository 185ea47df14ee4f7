"""A server that greets like a store, and answers each decision with whatever a test wants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def scripted_store(answer: bytes) -> AsyncIterator[str]:
    """Yield the URL of a server that answers each EVALSHA with `answer`.

    It closes the connection if `answer` is not a complete line.
    """
    writers: list[asyncio.StreamWriter] = []
    served: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        served.append(asyncio.current_task())
        # A client that gave up before the answer breaks the connection.
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                writer.write(b"+OK\r\n" * piece.count(b"SETINFO"))
                if b"EVALSHA" in piece:
                    writer.write(answer * piece.count(b"EVALSHA"))
                    if not answer.endswith(b"\r\n"):
                        writer.close()
                        return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*filter(None, served))
