"""The whole application in process, called without a socket and with a fake clock."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlencode

from prometheus_client import generate_latest

from stoplist.db import Database
from stoplist.limits.memory import MemoryLimiter
from stoplist.oauth.usage import Usage
from stoplist.proof.held_requests import HeldRequests
from stoplist.proof.worst_keys import WorstKeys
from stoplist.source import Network
from stoplist.web.app import build_app
from stoplist.web.metrics import Metrics
from stoplist.web.parts import Parts
from stoplist.web.readiness import Readiness
from stoplist.web.request_context import BODY_PROGRESS, TOKEN_PATH, WHOLE_ANSWER, Message
from tests.builders import ADMINISTRATOR, Run, make_key, value
from tests.fakes import FakeClock
from tests.keys import CLIENT_CREDENTIALS, Key

T = TypeVar("T")
Headers = list[tuple[str, str | bytes]]

PARTNER_IP, STRANGER_IP, PROXY_IP = "192.0.2.1", "198.51.100.7", "10.0.0.1"
BASE_URL = "https://stoplist.example"
FORM = ("content-type", "application/x-www-form-urlencoded")
PART_BYTES = 4000


class Answer(NamedTuple):
    """One answer, with its headers as they were sent."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json()["error"]

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None; fail if it comes more than once."""
        values = [text for known, text in self.headers if known == name]
        assert len(values) <= 1, f"{name} comes more than once"
        return values[0] if values else None


class Application:
    """The application over an open database, with new limits and metrics."""

    def __init__(
        self,
        run: Run,
        database: Database,
        clock: FakeClock,
        *,
        trusted_proxies: tuple[Network, ...] = (),
        secret_keys: tuple[str, ...] = ("k" * 32,),
        require_two_step: str = "nobody",
        sends_mail: bool = False,
    ) -> None:
        self.run, self.database, self.clock = run, database, clock
        self.limiter, self.usage = MemoryLimiter(clock), Usage()
        self.held = HeldRequests(database)
        self.worst_keys = WorstKeys()
        self.metrics = Metrics(database, self.limiter, self.held, self.worst_keys)
        self.stop = asyncio.Event()
        self.readiness = Readiness(self.stop)
        self.parts = Parts(
            database=database,
            clock=clock,
            limiter=self.limiter,
            usage=self.usage,
            metrics=self.metrics,
            readiness=self.readiness,
            held=self.held,
            worst_keys=self.worst_keys,
            secret_keys=secret_keys,
            base_url=BASE_URL,
            require_two_step=require_two_step,
            sends_mail=sends_mail,
        )
        self._app = build_app(self.parts, trusted_proxies=trusted_proxies).asgi

    def request(self, method: str, target: str, **options: Any) -> Answer:
        """Return the answer to one request, with the options of `answer`."""
        answer: Answer = self.run(self.answer(method, target, **options))
        return answer

    async def answer(
        self,
        method: str,
        target: str,
        *,
        headers: Headers | None = None,
        body: bytes = b"",
        peer: str = PARTNER_IP,
        scheme: str = "https",
        meanwhile: Callable[[], Awaitable[Any]] | None = None,
        left: asyncio.Event | None = None,
    ) -> Answer:
        """Return the answer to a request, which may run beside others; its scope is the one that the server would make.

        `meanwhile` runs before the last part of the body arrives. The client leaves when `left` is set.
        """
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": ("127.0.0.1", 8443),
            "client": (peer, 40_000),
            "scheme": scheme,
            "method": method,
            "root_path": "",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), _raw(text)) for name, text in headers or []],
        }
        return await _call(self._app, scope, body, meanwhile, left or asyncio.Event())

    def ask_token(
        self, form: dict[str, str] | bytes, *headers: tuple[str, str | bytes], peer: str = PARTNER_IP
    ) -> Answer:
        """Return the answer of the token endpoint to this form."""
        body = form if isinstance(form, bytes) else urlencode(form).encode()
        return self.request("POST", TOKEN_PATH, headers=[FORM, *headers], body=body, peer=peer)

    def issue(self, key: Key) -> Answer:
        """Request the `client_credentials` grant, with HTTP Basic."""
        return self.ask_token(CLIENT_CREDENTIALS, key.basic)

    def refresh(self, refresh_token: str, *headers: tuple[str, str | bytes], **others: str) -> Answer:
        """Request the `refresh_token` grant."""
        return self.ask_token({"grant_type": "refresh_token", "refresh_token": refresh_token, **others}, *headers)

    def call(self, access_token: str, target: str = "/api/v1/unsubscribe/email", *, method: str = "GET") -> Answer:
        """Call the API with this token."""
        return self.request(method, target, headers=[("authorization", f"Bearer {access_token}")])

    def new_key(self, **options: Any) -> Key:
        """Create an active key of the organization `acme`."""
        created = self.run(make_key(self.database, self.clock, **options))
        return Key(created.credential.client_id, created.client_secret)

    def pair(self, key: Key) -> dict[str, Any]:
        """Issue a pair of tokens, and return its five fields."""
        answer = self.issue(key)
        assert answer.status == 200, answer.body
        fields: dict[str, Any] = answer.json()
        return fields

    def administer(self, operation: Callable[..., Awaitable[T]], **values: Any) -> T:
        """Run an operation as an administrator, and return its result."""

        async def operate() -> T:
            return await operation(ADMINISTRATOR, self.database, self.clock, **values)

        result: T = self.run(operate())
        return result

    def value(self, text: str, **values: Any) -> Any:
        """Return the first value of the result of a statement."""
        return self.run(value(self.database, text, **values))

    def metrics_page(self) -> str:
        """Return the text that the metrics address serves."""
        return generate_latest(self.metrics.registry).decode()

    def stored_pairs(self) -> int:
        return int(self.value("SELECT COUNT(*) AS number FROM token_pairs"))


async def _call(
    app: Any, scope: dict[str, Any], body: bytes, meanwhile: Callable[[], Awaitable[Any]] | None, left: asyncio.Event
) -> Answer:
    """Return the complete answer; the body is sent in parts, as over a network."""
    parts = [body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES)] or [b""]
    incoming = [{"type": "http.request", "body": part, "more_body": n < len(parts)} for n, part in enumerate(parts, 1)]
    sent: list[Message] = []

    async def receive() -> Message:
        if not incoming:
            await left.wait()  # the client waits for its answer
            return {"type": "http.disconnect"}
        if len(incoming) == 1 and meanwhile is not None:
            await meanwhile()
        return incoming.pop(0)

    async def send(message: Message) -> None:
        if message["type"] != BODY_PROGRESS:
            sent.append(message)

    await app(scope, receive, send)
    if not sent:
        return Answer(0, [], b"")  # the client has left
    start, *rest = sent
    if start["type"] == WHOLE_ANSWER:
        assert not rest
        rest = [start]
    headers = [(name.decode(), text.decode("latin-1")) for name, text in start["headers"]]
    assert all(not message.get("more_body") for message in rest[-1:])
    return Answer(start["status"], headers, b"".join(message["body"] for message in rest))


def _raw(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")
