"""Receives opt-outs from webhooks of an SMS gateway (STOP) and a mail provider (complaints), and submits them.

usage: webhook_receiver.py [PORT]

    POST /sms         {"from": "+14155550123", "text": "STOP"}
    POST /complaint   {"recipient": "ann@example.com", "timestamp": "2026-03-01T09:30:00Z"}

Each request has the header X-Signature: the HMAC-SHA256 of the body with WEBHOOK_SECRET, in hexadecimal.

An opt-out is answered with 204 once it is on this machine's disk. From there it is submitted in batches, and retried
until that succeeds: nothing is lost if the service is unavailable or this program is killed. Senders repeat a webhook
that was not answered with 204, and submitting an opt-out twice is harmless.
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
MAX_BYTES = 64 * 1024
COLLECT_S = 2.0
"""Opt-outs that arrive within this time are submitted together, since a key has 60 requests per minute."""
RETRY_S = 30.0


# The formats of the senders. Each function returns the channel and the item, or None if nobody opts out, and raises
# ValueError or KeyError for another format.


def from_sms(message: dict[str, Any]) -> tuple[Channel, Item] | None:
    # People also write "Stop." and "STOP!".
    if "".join(filter(str.isalnum, str(message["text"]))).upper() not in STOP_WORDS:
        return None
    return "sms", Item(str(message["from"]), moment(None), "stop_keyword", "SMS")


def from_complaint(message: dict[str, Any]) -> tuple[Channel, Item] | None:
    return "email", Item(str(message["recipient"]), moment(message.get("timestamp")), "complaint", "mail provider")


SENDERS = {"/sms": from_sms, "/complaint": from_complaint}


def moment(stated: str | None) -> str:
    """Return when the person acted, at the latest now. The queue stores it, so that no retry changes it.

    Raises OverflowError for a time outside of the years 1 to 9999.
    """
    now = datetime.now(UTC)
    acted = datetime.fromisoformat(stated) if stated else now
    if acted.tzinfo is None:
        raise ValueError("a time without its UTC offset")
    return min(acted, now).astimezone(UTC).isoformat(timespec="milliseconds")


# The web application. It uses WSGI, so any WSGI server can run it.


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response(answer(environ), [("Content-Length", "0")])
    return []


def answer(environ: dict[str, Any]) -> str:
    parse = SENDERS.get(environ["PATH_INFO"])
    if parse is None or environ["REQUEST_METHOD"] != "POST":
        return "404 Not Found"
    length = environ.get("CONTENT_LENGTH") or ""
    if not length.isdecimal() or int(length) > MAX_BYTES:
        return "413 Content Too Large"
    body = environ["wsgi.input"].read(int(length))
    signature = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature.encode(), environ.get("HTTP_X_SIGNATURE", "").encode()):
        return "401 Unauthorized"
    try:
        opt_out = parse(json.loads(body))
    except (ValueError, KeyError, TypeError, OverflowError):
        return "400 Bad Request"
    if opt_out is not None:
        enqueue(*opt_out)
        has_new_rows.set()
    return "204 No Content"


# The queue is a SQLite table on this machine.


def queue() -> closing[sqlite3.Connection]:
    connection = sqlite3.connect(QUEUE, timeout=30)
    connection.execute("PRAGMA synchronous = EXTRA")  # commits survive a power failure
    connection.execute(
        "CREATE TABLE IF NOT EXISTS queue"
        " (id INTEGER PRIMARY KEY, channel, address, occurred_at, reason, source, refused)"
    )
    return closing(connection)


def enqueue(channel: Channel, item: Item) -> None:
    with queue() as connection, connection:  # the second one commits
        connection.execute(
            "INSERT INTO queue (channel, address, occurred_at, reason, source) VALUES (?, ?, ?, ?, ?)",
            (channel, item.address, item.occurred_at, item.reason, item.source),
        )


# A background thread submits the queue.

has_new_rows = threading.Event()
CHANNELS: tuple[Channel, ...] = ("email", "sms")


def submit_forever(client: Client) -> None:
    try:
        while True:
            has_new_rows.clear()
            for channel in CHANNELS:
                submit_all(client, channel)
            has_new_rows.wait(RETRY_S)
            time.sleep(COLLECT_S)
    finally:
        os._exit(1)  # if this thread ends, the whole program ends, so that somebody notices


def submit_all(client: Client, channel: Channel) -> None:
    try:
        while submit_some(client, channel):
            pass
    except (StoplistClientError, sqlite3.Error) as error:
        log(f"The queue waits: {error}")
    except Exception as error:  # a bug; its message may show an address
        log(f"The queue waits: {type(error).__name__}")


def log(line: str) -> None:
    with suppress(OSError, ValueError):  # a closed stderr must not stop the program
        print(line, file=sys.stderr, flush=True)


def submit_some(client: Client, channel: Channel) -> bool:
    """Submit the oldest rows of the queue, and delete those that were accepted. Returns False if there are none.

    A refused row is sent once more without its time, and so counts as of now: our clock or the sender's may have been
    wrong. A row that is refused again, such as an invalid address, stays in the queue with the reason.
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
        # If the program is killed here, all rows are sent again, which changes nothing, since each has its time.
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
        """Do not log requests."""


def main(port: int) -> None:
    os.umask(0o077)  # the queue contains addresses: only this user may read it
    with queue():
        pass  # fails now rather than at the first webhook
    client = Client(
        os.environ["STOPLISTCLIENT_BASE_URL"],
        client_id=os.environ["STOPLISTCLIENT_CLIENT_ID"],
        client_secret=os.environ["STOPLISTCLIENT_CLIENT_SECRET"],
        ca_file=os.environ.get("STOPLISTCLIENT_CA_FILE"),  # for a server with a self-made certificate
    )
    threading.Thread(target=submit_forever, args=(client,), daemon=True).start()
    with make_server("127.0.0.1", port, application, server_class=Server, handler_class=Handler) as server:
        print(f"Listening on port {server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
