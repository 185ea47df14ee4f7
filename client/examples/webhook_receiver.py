"""Takes the opt-outs that others tell you of, an SMS gateway (STOP) and a mail provider (complaints), and submits them.

usage: webhook_receiver.py [PORT]

    POST /sms         {"from": "+14155550123", "text": "STOP"}
    POST /complaint   {"recipient": "ann@example.com", "timestamp": "2026-03-01T09:30:00Z"}

Each with the header X-Signature: the HMAC-SHA256 of the body under WEBHOOK_SECRET, in hexadecimal.

An opt-out is answered with 204 once it is on this machine's disk. From there it goes to the service, in batches, for as
long as that takes: nothing is lost if the service is away, or if this program is killed. Who sends a webhook repeats it
where no 204 came, and to submit something twice is harmless.
"""

import hashlib
import hmac
import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from datetime import UTC, datetime
from socketserver import ThreadingMixIn
from typing import Any, Literal
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from stoplist_client import Client, Item, StoplistClientError

Channel = Literal["email", "sms"]

QUEUE = os.environ.get("QUEUE", "opt-outs.db")
SECRET = os.environ["WEBHOOK_SECRET"].encode()
STOP_WORDS = {"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT"}
MOST_BYTES = 64 * 1024
COLLECT_S = 2.0
"""What arrives within this time goes out together: a key has 60 requests a minute."""
RETRY_S = 30.0


# What the senders say: the channel and the item, or None where nobody opts out. ValueError, KeyError: not understood.


def from_sms(message: dict[str, Any]) -> tuple[Channel, Item] | None:
    # People write "Stop." and "STOP!", too.
    if "".join(filter(str.isalnum, str(message["text"]))).upper() not in STOP_WORDS:
        return None
    return "sms", Item(str(message["from"]), moment(None), "stop_keyword", "SMS")


def from_complaint(message: dict[str, Any]) -> tuple[Channel, Item] | None:
    return "email", Item(str(message["recipient"]), moment(message.get("timestamp")), "complaint", "mail provider")


SENDERS = {"/sms": from_sms, "/complaint": from_complaint}


def moment(stated: str | None) -> str:
    """When the person acted, as far as we know; now at the latest. It is written down, so that no retry changes it.

    OverflowError: out of the calendar.
    """
    now = datetime.now(UTC)
    acted = datetime.fromisoformat(stated) if stated else now
    if acted.tzinfo is None:
        raise ValueError("a moment without its offset from UTC")
    return min(acted, now).astimezone(UTC).isoformat(timespec="milliseconds")


# The web application: WSGI, so that another server can run it


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response(answer(environ), [("Content-Length", "0")])
    return []


def answer(environ: dict[str, Any]) -> str:
    read = SENDERS.get(environ["PATH_INFO"])
    if read is None or environ["REQUEST_METHOD"] != "POST":
        return "404 Not Found"
    length = environ.get("CONTENT_LENGTH") or ""
    if not length.isdecimal() or int(length) > MOST_BYTES:
        return "413 Content Too Large"
    body = environ["wsgi.input"].read(int(length))
    signature = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature.encode(), environ.get("HTTP_X_SIGNATURE", "").encode()):
        return "401 Unauthorized"
    try:
        opt_out = read(json.loads(body))
    except (ValueError, KeyError, TypeError, OverflowError):
        return "400 Bad Request"
    if opt_out is not None:
        put_on_disk(*opt_out)
        is_something_queued.set()
    return "204 No Content"


# The queue: a table on this machine


def queue() -> closing[sqlite3.Connection]:
    connection = sqlite3.connect(QUEUE, timeout=30)
    connection.execute("PRAGMA synchronous = EXTRA")  # what is committed outlives a power failure
    connection.execute(
        "CREATE TABLE IF NOT EXISTS queue"
        " (id INTEGER PRIMARY KEY, channel, address, occurred_at, reason, source, refused)"
    )
    return closing(connection)


def put_on_disk(channel: Channel, item: Item) -> None:
    with queue() as connection, connection:  # the inner one commits
        connection.execute(
            "INSERT INTO queue (channel, address, occurred_at, reason, source) VALUES (?, ?, ?, ?, ?)",
            (channel, item.address, item.occurred_at, item.reason, item.source),
        )


# To the service, in the background

is_something_queued = threading.Event()
CHANNELS: tuple[Channel, ...] = ("email", "sms")


def submit_for_ever(client: Client) -> None:
    try:
        while True:
            is_something_queued.clear()
            for channel in CHANNELS:
                submit_all(client, channel)
            is_something_queued.wait(RETRY_S)
            time.sleep(COLLECT_S)
    finally:
        os._exit(1)  # rather no receiver, which somebody notices, than one that takes opt-outs and submits none


def submit_all(client: Client, channel: Channel) -> None:
    try:
        while submit_some(client, channel):
            pass
    except (StoplistClientError, sqlite3.Error) as error:
        log(f"The queue waits: {error}")
    except Exception as error:  # a defect; its text may show an address
        log(f"The queue waits: {type(error).__name__}")


def log(line: str) -> None:
    with suppress(OSError, ValueError):  # that nobody listens any more ends nothing
        print(line, file=sys.stderr, flush=True)


def submit_some(client: Client, channel: Channel) -> bool:
    """The oldest rows of the queue were answered, and are gone from it; False where there are none.

    What the service does not accept is sent once more without its moment, and so counts from now on: perhaps our clock
    or the sender's was wrong. What is refused then too, such as an address that is none, stays with the reason, for
    somebody to look at.
    """
    with queue() as connection:
        rows = connection.execute(
            "SELECT id, address, occurred_at, reason, source FROM queue"
            " WHERE channel = ? AND refused IS NULL ORDER BY id LIMIT 10000",
            (channel,),
        ).fetchall()
        if not rows:
            return False
        sums = client.unsubscribe(channel, [Item(*row[1:]) for row in rows], lenient=True)
        # If we are killed here all of these are sent again, which changes nothing: each has its moment.
        refused = {error.item_index: error.item_error for error in sums.item_errors}
        with connection:
            for index, (number, _address, occurred_at, *_) in enumerate(rows):
                if index not in refused:
                    connection.execute("DELETE FROM queue WHERE id = ?", (number,))
                elif occurred_at is not None:
                    connection.execute("UPDATE queue SET occurred_at = NULL WHERE id = ?", (number,))
                else:
                    connection.execute("UPDATE queue SET refused = ? WHERE id = ?", (refused[index], number))
    return True


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Handler(WSGIRequestHandler):
    timeout = 30

    def log_message(self, *_: object) -> None:
        """No lines with what others send."""


def main(port: int) -> None:
    os.umask(0o077)  # the queue holds addresses: it is for this user alone
    with queue():
        pass  # or fail now, not at the first webhook
    client = Client(
        os.environ["STOPLISTCLIENT_BASE_URL"],
        client_id=os.environ["STOPLISTCLIENT_CLIENT_ID"],
        client_secret=os.environ["STOPLISTCLIENT_CLIENT_SECRET"],
        ca_file=os.environ.get("STOPLISTCLIENT_CA_FILE"),  # for a server that made its certificate itself
    )
    threading.Thread(target=submit_for_ever, args=(client,), daemon=True).start()
    with make_server("127.0.0.1", port, application, server_class=Server, handler_class=Handler) as server:
        print(f"Listening on port {server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
