"""The table of all settings: the parser, the valid values and the default of each.

Source: docs/interface.md section D1.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from stoplist.setting_texts import PREFIX
from stoplist.setting_values import (
    SECRET_KEY_MIN_CHARS,
    parse_base_url,
    parse_database_url,
    parse_feeds_url,
    parse_host,
    parse_limits_url,
    parse_listen,
    parse_networks,
    parse_notice_secrets,
    parse_notice_url,
    parse_number,
    parse_path,
    parse_secret_keys,
    parse_smtp_url,
)

_YES_OR_NO = {"yes": True, "no": False}
_SWITCH = {"on": True, "true": True, "off": False, "false": False}


class Setting(msgspec.Struct, frozen=True):
    """The parser of a setting, its valid values in words, its default, and whether it holds a password or key.

    A file may hold a secret, and no error repeats it.
    """

    parse: Callable[[str], Any]
    expected: str
    default: Any = None
    is_secret: bool = False


def _one_of(*words: str) -> Setting:
    expected = " or ".join((", ".join(words[:-1]), words[-1]))
    return Setting({word: word for word in words}.__getitem__, expected, words[0])


def _whole_number(low: int, high: int, *, default: int) -> Setting:
    return Setting(partial(parse_number, low, high), f"a whole number from {low} to {high}", default)


SETTINGS: dict[str, Setting] = {
    "ENVIRONMENT": _one_of("development", "production"),
    "BASE_URL": Setting(parse_base_url, "https://host or https://host:port and nothing after it"),
    "LINKS_BASE_URL": Setting(parse_base_url, "https://host or https://host:port and nothing after it"),
    "HOST": Setting(parse_host, "an IP address (IPv6 without brackets) or a host name", "127.0.0.1"),
    "PORT": _whole_number(1, 65535, default=8443),
    "DATA_DIR": Setting(parse_path, "the path of a folder", Path("data")),
    "DATABASE_URL": Setting(parse_database_url, "sqlite:///PATH or postgresql://…", is_secret=True),
    "FEEDS_URL": Setting(parse_feeds_url, "postgresql://…", is_secret=True),
    "DATABASE_POOL": _whole_number(2, 1000, default=20),
    "DATABASE_PREPARED": Setting(_SWITCH.__getitem__, "on or off", default=True),
    "LIMITS_URL": Setting(parse_limits_url, "memory: or redis://…, rediss://… or unix://…", is_secret=True),
    "TLS_CERT": Setting(parse_path, "the path of a certificate chain in PEM"),
    "TLS_KEY": Setting(parse_path, "the path of a private key in PEM"),
    "TRUSTED_PROXIES": Setting(parse_networks, "networks like 10.0.0.0/8 or addresses, with commas between", ()),
    "SECRET_KEY": Setting(
        parse_secret_keys,
        f"keys of at least {SECRET_KEY_MIN_CHARS} characters each, with commas between",
        default=(),
        is_secret=True,
    ),
    "REFRESH_CHAIN_DAYS": _whole_number(0, 3650, default=0),
    "REQUIRE_TWO_STEP": _one_of("nobody", "administrators", "everybody"),
    "IMPORT_MAX_MB": _whole_number(1, 10_000, default=200),
    "NOTICE_URL": Setting(parse_notice_url, "https://… without user name and fragment", is_secret=True),
    "NOTICE_SECRET": Setting(
        parse_notice_secrets,
        "secrets with commas between, each whsec_ and 24 to 64 bytes in base64",
        default=(),
        is_secret=True,
    ),
    "NOTICE_ALLOW_PRIVATE": Setting(_YES_OR_NO.__getitem__, "yes or no", default=False),
    "SMTP_URL": Setting(parse_smtp_url, "smtps://… or smtp+starttls://…, with ?from=ADDRESS", is_secret=True),
    "PROPAGATION_HOURS": _whole_number(1, 8_760, default=48),
    "HISTORY_DAYS": _whole_number(0, 36_500, default=0),
    "AUDIT_DAYS": _whole_number(0, 36_500, default=0),
    "WORKERS": _whole_number(1, 1000, default=1),
    "DRAIN_S": _whole_number(0, 3600, default=10),
    "CONNECTIONS": _whole_number(10, 1_000_000, default=10_000),
    "CONNECTIONS_PER_SOURCE": _whole_number(1, 1_000_000, default=1_000),
    "METRICS_LISTEN": Setting(parse_listen, "HOST:PORT (an IPv6 address in brackets)"),
    "LOG_FORMAT": _one_of("console", "json"),
}
FIELDS = {"SECRET_KEY": "secret_keys", "NOTICE_SECRET": "notice_secrets", "SMTP_URL": "smtp_server"}
"""The field of `Settings` where it is not the name of the setting in lower case."""

SETTING_NAMES = tuple(SETTINGS)
"""The name of every setting, without the prefix of its variable."""

VARIABLE_NAMES = tuple(
    f"{PREFIX}{name}{suffix}" for name, setting in SETTINGS.items() for suffix in ("", "_FILE")[: 1 + setting.is_secret]
)
"""Every variable that is read; any other variable that begins with `STOPLIST_` is an error."""
