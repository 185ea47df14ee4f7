"""Parsers of setting values: each returns the value of a text, or raises ValueError.

The table of settings says what is valid. A HintError adds what is wrong with this particular value.
"""

import base64
import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

SQLITE_SCHEME = "sqlite:///"
POSTGRESQL_SCHEME = "postgresql://"
SECRET_KEY_MIN_CHARS = 32
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_DIGITS = re.compile(r"[0-9]{1,9}")


# A name whose last label begins with a digit is a mistyped address.
_HOST_NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::([0-9]+))?")
_CIDR = re.compile(r"[0-9A-Fa-f:.]+(?:/[0-9]{1,3})?")
_DATABASE_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:,\[\]]*)(?::[0-9]{1,5})?"
_POSTGRESQL_URL = re.compile(
    rf"{POSTGRESQL_SCHEME}(?=.)(?:[^/?#]*@)?{_DATABASE_HOST}(?:,{_DATABASE_HOST})*(?:/[^?#@]*)?(?:\?[^#]*)?"
)
_SHARED_LIMITS_URL = re.compile(r"(?:rediss?|unix)://.+")
_NOTICE_URL = re.compile(r"https://([^/?#@]+)(?:/[!-~]*)?(?:\?[!-~]*)?", re.IGNORECASE)
_NOTICE_SECRET = "whsec_"
_NOTICE_SECRET_BYTES = range(24, 65)
_SMTP_URL = re.compile(
    r"(smtps|smtp\+starttls)://(?:([^/?#@:]+)(?::([^/?#@]*))?@)?([^/?#@]+)/?(?:\?([^#]*))?", re.ASCII
)
_SMTP_PORTS = {"smtps": 465, "smtp+starttls": 587}
_SENDER = re.compile(r"[!#-'*+\-/-9=?A-Z^-~.]+@[A-Za-z0-9.\-]+", re.ASCII)


class SmtpServer(NamedTuple):
    """A mail server: TLS from the first byte, or by STARTTLS, and who sends. `user` and `password` may be absent."""

    host: str
    port: int
    is_starttls: bool
    user: str | None
    password: str | None
    sender: str

    def __repr__(self) -> str:
        return f"SmtpServer(host={self.host!r}, port={self.port}, ...)"


class HintError(ValueError):
    """Says what is wrong with this particular value, without repeating a secret."""


def parse_number(low: int, high: int, text: str) -> int:
    """Return a whole number from `low` to `high`, written in ASCII digits alone."""
    # int() alone would also accept signs, spaces, underscores and the digits of other alphabets.
    if not _DIGITS.fullmatch(text) or not low <= int(text) <= high:
        raise ValueError
    return int(text)


def parse_path(text: str) -> Path:
    """Return a path, which need not exist."""
    if not text:
        raise ValueError
    return Path(text)


def parse_host(text: str) -> str:
    """Return an address in its canonical form, or a host name in lower case."""
    try:
        return str(ip_address(text))
    except ValueError:
        if len(text) > 253 or not _HOST_NAME.fullmatch(text.lower()):
            raise
        return text.lower()


def parse_authority(text: str) -> tuple[str, int | None]:
    """Return host and port of `host[:port]`, without the brackets of an IPv6 address."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise ValueError
    bracketed, bare, port = match.groups()
    host = str(IPv6Address(bracketed)) if bracketed else parse_host(bare)
    return host, None if port is None else parse_number(1, 65535, port)


def parse_base_url(text: str) -> str:
    """Return `https://host[:port]` in lower case, without a trailing slash."""
    scheme, _, rest = text.partition("://")
    if scheme.lower() != "https":
        raise ValueError
    host, port = parse_authority(rest.removesuffix("/"))
    return f"https://{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`."""
    host, port = parse_authority(text)
    if port is None:
        raise ValueError
    return host, port


def parse_database_url(text: str) -> str:
    """Return the URL of a SQLite file or of a PostgreSQL database, as it was given."""
    if text.startswith(SQLITE_SCHEME):
        return parse_sqlite_url(text)
    if text.startswith("postgres://"):
        raise HintError("write postgresql:// instead of postgres://")
    if not text.startswith(POSTGRESQL_SCHEME):
        raise ValueError
    # A driver that misreads a URL quotes the supposed port in its error: a part of the password.
    if not _POSTGRESQL_URL.fullmatch(text):
        raise HintError("/ ? # and brackets in a user name or password must be percent-encoded")
    return text


def parse_feeds_url(text: str) -> str:
    """Return the URL of a PostgreSQL database, as it was given."""
    if text.startswith(SQLITE_SCHEME):
        raise HintError("a SQLite file holds accounts and feeds together")
    return parse_database_url(text)


def parse_sqlite_url(text: str) -> str:
    """Return the URL of a SQLite file, as it was given."""
    path = text.removeprefix(SQLITE_SCHEME)
    if not path or path.endswith("/") or "?" in path or "#" in path:
        raise HintError("PATH is the path of a file, without ? and #; an absolute path makes four slashes")
    if path == ":memory:":
        raise HintError("a database in memory would lose its records when the server stops")
    return text


def parse_limits_url(text: str) -> str:
    """Return `memory:`, or the URL of a limit store, as it was given."""
    if text != "memory:" and not _SHARED_LIMITS_URL.fullmatch(text):
        raise ValueError
    return text


def parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return the networks of a list with commas between."""
    return tuple(parse_network(item.strip()) for item in text.split(","))


def parse_network(text: str) -> IPv4Network | IPv6Network:
    """Return the network of `10.0.0.0/8`, or of a single address."""
    # The standard library would also accept netmasks, which look like addresses.
    if not _CIDR.fullmatch(text):
        raise ValueError
    interface = ip_interface(text)
    if interface.ip != interface.network.network_address:
        raise HintError(f"{interface} is an address within a network; the network is {interface.network}")
    if interface.network.prefixlen == 0:
        raise HintError("a network of all addresses would let every client forge its address")
    return interface.network


def parse_secret_keys(text: str) -> tuple[str, ...]:
    """Return the keys of a list with commas between."""
    keys = tuple(key.strip() for key in text.split(","))
    if min(map(len, keys)) < SECRET_KEY_MIN_CHARS:
        raise ValueError
    return keys


def parse_notice_url(text: str) -> str:
    """Return the URL of a webhook, as it was given."""
    match = _NOTICE_URL.fullmatch(text)
    if match is None or "#" in text:
        if "@" in text.partition("://")[2].partition("/")[0]:
            raise HintError("a receiver is authenticated by the signature, not by a user name and password")
        raise ValueError
    parse_authority(match[1])
    return text


def parse_notice_secrets(text: str) -> tuple[bytes, ...]:
    """Return the keys of a list of Standard Webhooks' secrets."""
    secrets = []
    for item in text.split(","):
        prefix, encoded = item.strip()[: len(_NOTICE_SECRET)], item.strip()[len(_NOTICE_SECRET) :]
        if prefix != _NOTICE_SECRET:
            raise ValueError
        secrets.append(base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True))
    if any(len(secret) not in _NOTICE_SECRET_BYTES for secret in secrets):
        raise ValueError
    return tuple(secrets)


def parse_smtp_url(text: str) -> SmtpServer:
    """Return the mail server of `smtps://user:password@host[:port][?from=ADDRESS]`, or `smtp+starttls://…`."""
    match = _SMTP_URL.fullmatch(text)
    if match is None:
        if text.lower().startswith("smtp://"):
            raise HintError("write smtps:// or smtp+starttls://: passwords and links are not sent in clear")
        raise HintError("/ ? # @ and : in a user name or password must be percent-encoded")
    scheme, user, password, authority, query = match.groups()
    host, port = parse_authority(authority)
    options = parse_qsl(query or "", strict_parsing=bool(query), max_num_fields=1)
    if any(name != "from" for name, _ in options):
        raise HintError("the only option after ? is from=ADDRESS")
    user, password = (None if part is None else unquote(part, errors="strict") for part in (user, password))
    sender = dict(options).get("from", user or "")
    if not _SENDER.fullmatch(sender):
        raise HintError("add ?from=ADDRESS, the address that its e-mails come from")
    if UNPRINTABLE.search(f"{user}{password}"):
        raise HintError("user name and password have no control characters")
    return SmtpServer(host, port or _SMTP_PORTS[scheme], scheme == "smtp+starttls", user, password, sender)
