"""Settings from variables, files and flags, and what is refused (docs/interface.md section D1)."""

import base64
import string
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.errors import SettingsError
from stoplist.serve_requirements import server_settings
from stoplist.setting_table import SETTING_NAMES, VARIABLE_NAMES
from stoplist.settings import Settings, load, parse

pytestmark = pytest.mark.interpreter

NO_FILE = Path("absent/.env")
KEY = "0123456789abcdefghijklmnopqrstuv"
PRODUCTION = {"STOPLIST_ENVIRONMENT": "production", "STOPLIST_BASE_URL": "https://optout.example"}
POSTGRESQL = {
    "STOPLIST_DATABASE_URL": "postgresql://stoplist:hunter2@db.example/stoplist",
    "STOPLIST_LIMITS_URL": "memory:",
    "STOPLIST_SECRET_KEY": KEY,
}


def settings(**variables: str) -> Settings:
    """Return the settings from these variables, named without prefix."""
    return load({f"STOPLIST_{name}": text for name, text in variables.items()}, env_file=NO_FILE)


def refusal(environ: dict[str, str], env_file: Path = NO_FILE, flags: dict[str, str | None] | None = None) -> str:
    with pytest.raises(SettingsError) as refused:
        load(environ, env_file=env_file, flags=flags)
    return refused.value.text


def serve_refusal(environ: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as refused:
        server_settings(environ, env_file=NO_FILE)
    return refused.value.text


def env_file(folder: Path, text: str) -> Path:
    path = folder / ".env"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_those_of_the_interface() -> None:
    """Section D1: the defaults of the row Settings, which are enough to serve."""
    environ = {"PATH": "/bin", "stoplist_port": "1", "NOT_STOPLIST_PORT": "1"}
    found = load(environ, env_file=NO_FILE)
    assert found == Settings(
        environment="development",
        base_url="https://localhost:8443",
        is_base_url_set=False,
        links_base_url="https://localhost:8443",
        host="127.0.0.1",
        port=8443,
        data_dir=Path("./data"),
        database_url="sqlite:///data/stoplist.db",
        feeds_url=None,
        database_pool=20,
        database_prepared=True,
        limits_url=None,
        tls_cert=None,
        tls_key=None,
        trusted_proxies=(),
        secret_keys=(),
        refresh_chain_days=0,
        require_two_step="nobody",
        notice_url=None,
        notice_secrets=(),
        notice_allow_private=False,
        smtp_server=None,
        import_max_mb=200,
        propagation_hours=48,
        history_days=0,
        audit_days=0,
        workers=1,
        drain_s=10,
        connections=10_000,
        connections_per_source=1_000,
        metrics_listen=None,
        log_format="console",
    )
    assert server_settings(environ, env_file=NO_FILE) == found


RIGHT = [
    ("ENVIRONMENT", "production", "production"),
    ("REQUIRE_TWO_STEP", "administrators", "administrators"),
    ("REQUIRE_TWO_STEP", "everybody", "everybody"),
    ("BASE_URL", "https://optout.example", "https://optout.example"),
    ("BASE_URL", "https://optout.example:8443/", "https://optout.example:8443"),
    ("BASE_URL", "HTTPS://OptOut.Example", "https://optout.example"),
    ("LINKS_BASE_URL", "https://stop.example", "https://stop.example"),
    ("BASE_URL", "https://192.0.2.7", "https://192.0.2.7"),
    ("BASE_URL", "https://[2001:DB8::1]:443", "https://[2001:db8::1]:443"),
    ("HOST", "0.0.0.0", "0.0.0.0"),  # noqa: S104
    ("HOST", "::", "::"),
    ("HOST", "db-1.Internal", "db-1.internal"),
    ("PORT", "1", 1),
    ("PORT", "65535", 65535),
    ("DATA_DIR", "/var/lib/stoplist", Path("/var/lib/stoplist")),
    ("DATABASE_URL", "sqlite:///here.db", "sqlite:///here.db"),
    ("DATABASE_URL", "sqlite:////var/lib/stoplist.db", "sqlite:////var/lib/stoplist.db"),
    ("DATABASE_POOL", "1000", 1000),
    ("DATABASE_PREPARED", "off", False),
    ("DATABASE_PREPARED", "true", True),
    ("LIMITS_URL", "memory:", "memory:"),
    ("LIMITS_URL", "rediss://:pw@cache:6380/0", "rediss://:pw@cache:6380/0"),
    ("LIMITS_URL", "unix:///run/valkey.sock", "unix:///run/valkey.sock"),
    ("TLS_CERT", "cert.pem", Path("cert.pem")),
    ("TRUSTED_PROXIES", "10.0.0.0/8, 192.0.2.7", (ip_network("10.0.0.0/8"), ip_network("192.0.2.7/32"))),
    ("TRUSTED_PROXIES", "fd00::/8,::1", (ip_network("fd00::/8"), ip_network("::1/128"))),
    ("IMPORT_MAX_MB", "10000", 10_000),
    ("NOTICE_URL", "https://hooks.example:8443/in?from=stoplist", "https://hooks.example:8443/in?from=stoplist"),
    ("NOTICE_URL", "https://[2001:db8::1]", "https://[2001:db8::1]"),
    ("NOTICE_ALLOW_PRIVATE", "yes", True),
    ("WORKERS", "4", 4),
    ("DRAIN_S", "0", 0),
    ("DRAIN_S", "3600", 3600),
    ("METRICS_LISTEN", "127.0.0.1:9100", ("127.0.0.1", 9100)),
    ("METRICS_LISTEN", "[::1]:9100", ("::1", 9100)),
    ("METRICS_LISTEN", "localhost:9100", ("localhost", 9100)),
    ("LOG_FORMAT", "json", "json"),
]


@pytest.mark.parametrize(("name", "text", "value"), RIGHT)
def test_valid_texts_are_parsed(name: str, text: str, value: object) -> None:
    """Section D1: every form that the settings allow."""
    assert getattr(settings(**{name: text}), name.lower()) == value


def test_secrets_of_notices_are_read_as_bytes() -> None:
    """Several with commas between, while one replaces another; padded or not."""
    first, second = b"a" * 24, b"b" * 25
    texts = [f"whsec_{base64.b64encode(one).decode().rstrip(end)}" for one, end in ((first, ""), (second, "="))]
    assert settings(NOTICE_SECRET=", ".join(texts)).notice_secrets == (first, second)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtps://a%40b.example:p%2Fw@mail.example", ("mail.example", 465, False, "a@b.example", "p/w", "a@b.example")),
        (
            "smtp+starttls://u:p@h.example:2525/?from=no-reply@b.example",
            ("h.example", 2525, True, "u", "p", "no-reply@b.example"),
        ),
        ("smtp+starttls://[::1]?from=a@b.example", ("::1", 587, True, None, None, "a@b.example")),
    ],
)
def test_a_mail_server_is_read_from_its_url(url: str, server: tuple[object, ...]) -> None:
    """The sender is named, or the user name is an address."""
    assert settings(SMTP_URL=url).smtp_server == server
    assert "p/w" not in repr(settings(SMTP_URL=url).smtp_server)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p%2Fw@db.example:5432/stoplist?sslmode=require",
        "postgresql://u:p@w@db.example/stoplist",
        "postgresql://a:1,b:2/stoplist",
        "postgresql://u:p@one.example,two.example:5433/stoplist?target_session_attrs=read-write&sslmode=verify-full",
        "postgresql://u@[2001:db8::1]:5432/stoplist",
        "postgresql:///stoplist?host=/run/postgresql",
        "postgresql://localhost",
    ],
)
def test_a_postgresql_url_is_kept_as_it_is(url: str) -> None:
    """The driver parses it; the settings only refuse what it would misread."""
    assert settings(DATABASE_URL=url).database_url == url


WRONG = [
    ("ENVIRONMENT", ["staging", "Production", " production"], "must be development or production"),
    (
        "BASE_URL",
        [
            "http://optout.example",
            "optout.example",
            "https://",
            "https:///",
            "https://optout.example/api",
            "https://optout.example//",
            "https://optout.example?x",
            "https://optout.example#x",
            "https://user@optout.example",
            "https://optout.example:0",
            "https://optout.example:65536",
            "https://optout.example:",
            "https://256.1.1.1",
            "https://::1",
            "https://[::1",
            "https://[fe80::1%25eth0]",
            "https://-x.example",
            "https://münchen.example",
            "https://optout.example\n",
        ],
        "must be https://host",
    ),
    ("HOST", ["[::1]", "127.0.0.01", "a b", "-a", "a..b", "x" * 64, "127.0.0.1:80"], "an IP address"),
    ("PORT", ["0", "65536", "-1", "+1", "8_443", "8443.0", " 8443", "٣", "9" * 5000], "from 1 to 65535"),
    ("DATA_DIR", ["a\0b", "a\nb"], "the path of a folder"),
    (
        "DATABASE_URL",
        ["mysql://h/d", "postgresql+asyncpg://h/d", "data.db"],
        "sqlite:///PATH or postgresql://",
    ),
    ("DATABASE_URL", ["postgres://u:p@h/d"], "postgresql:// instead of postgres://"),
    ("DATABASE_URL", ["sqlite:///", "sqlite:///a.db?mode=ro", "sqlite:///folder/"], "PATH is the path of a file"),
    ("DATABASE_URL", ["sqlite:///:memory:"], "in memory"),
    (
        "DATABASE_URL",
        ["postgresql://", "postgresql://u:p/w@h/d", "postgresql://u:1/w@h/d", "postgresql://u:p#w@h/d"],
        "percent-encoded",
    ),
    ("DATABASE_POOL", ["1", "1001", "many"], "from 2 to 1000"),
    ("DATABASE_PREPARED", ["yes", "1", "ON"], "on or off"),
    ("LIMITS_URL", ["memory", "memory://", "redis://", "http://h"], "memory: or redis://"),
    ("TRUSTED_PROXIES", ["10.1.2.3/8"], "the network is 10.0.0.0/8"),
    ("TRUSTED_PROXIES", ["0.0.0.0/0", "::/0"], "a network of all addresses"),
    (
        "TRUSTED_PROXIES",
        ["*", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0.0/8,", "proxy.example", "fe80::%eth0/64"],
        "networks like 10.0.0.0/8",
    ),
    ("SECRET_KEY", [KEY[1:], f"{KEY},", f"{KEY},short", " " * 40, "ä" * 31], "at least 32 characters"),
    (
        "NOTICE_URL",
        ["http://hooks.example", "https://", "https://hooks.example/a#b", "https://hooks.example/ä"],
        "https://…",
    ),
    ("NOTICE_URL", ["https://ann:pw@hooks.example/in", "https://ann@hooks.example"], "by the signature"),
    ("NOTICE_SECRET", ["x" * 40, "whsec_", f"whsec_{KEY},", "whsec_AAAA", "whsec_" + "A" * 100], "24 to 64 bytes"),
    ("NOTICE_ALLOW_PRIVATE", ["on", "true", "YES"], "yes or no"),
    ("SMTP_URL", ["smtp://mail.example?from=a@b.example"], "in clear"),
    ("SMTP_URL", ["smtps://mail.example", "smtps://ann@mail.example", "smtps://h?from=a b@c"], "?from=ADDRESS"),
    ("SMTP_URL", ["smtps://h?to=a@b.example"], "the only option"),
    ("SMTP_URL", ["smtps://a@b:c@d@h?from=a@b.example", "mailto:a@b.example"], "percent-encoded"),
    ("SMTP_URL", ["smtps://a%0Ab:c@h?from=a@b.example"], "no control characters"),
    ("WORKERS", ["0", "-1", "1.5", "auto"], "from 1 to 1000"),
    ("DRAIN_S", ["-1", "3601", "10s"], "from 0 to 3600"),
    ("METRICS_LISTEN", [":9100", "9100", "::1:9100", "localhost", "localhost:0"], "HOST:PORT"),
    ("LOG_FORMAT", ["text", "JSON"], "console or json"),
]


@pytest.mark.parametrize(
    ("name", "text", "expected_text"), [(n, text, expected_text) for n, texts, expected_text in WRONG for text in texts]
)
def test_a_malformed_variable_is_refused_with_its_name(name: str, text: str, expected_text: str) -> None:
    """Section D1: a malformed variable stops the start with a message that names it and what would be right."""
    message = refusal({f"STOPLIST_{name}": text})
    assert message.startswith(f"STOPLIST_{name} must be ")
    assert expected_text in message


@pytest.mark.parametrize("variable", VARIABLE_NAMES)
def test_an_empty_variable_counts_as_unset(variable: str) -> None:
    """Section D1, for every variable; in `.env` too, and without `=`."""
    assert load({variable: ""}, env_file=NO_FILE) == settings()


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_a_flag_wins_but_excuses_no_malformed_variable(name: str) -> None:
    """Section D1: a malformed variable is refused even if a flag overrides it."""
    assert f"STOPLIST_{name} must be" in refusal({f"STOPLIST_{name}": "\x01"}, flags={"PORT": "9", name: "9"})


def test_flags_override_variables_and_variables_the_env_file(tmp_path: Path) -> None:
    """Section D1: the order of the three; an absent flag and an empty variable do not count."""
    path = env_file(tmp_path, "STOPLIST_PORT=1\nSTOPLIST_HOST=::1\nexport STOPLIST_WORKERS='3'\nSTOPLIST_DRAIN_S=4\n")
    variables = {"STOPLIST_PORT": "2", "STOPLIST_HOST": "::2", "STOPLIST_DRAIN_S": ""}
    found = load(variables, env_file=path, flags={"PORT": "3", "HOST": None})
    assert (found.port, found.host, found.workers, found.drain_s) == (3, "::2", 3, 4)


def test_a_malformed_flag_is_refused_by_its_own_name() -> None:
    """The person wrote `--data-dir`, not STOPLIST_DATA_DIR; an empty flag is malformed."""
    assert refusal({}, flags={"PORT": "x"}) == "--port must be a whole number from 1 to 65535, not 'x'"
    assert refusal({}, flags={"DATA_DIR": ""}).startswith("--data-dir must be")
    with pytest.raises(SettingsError, match=r"^the thing must be"):
        parse("HOST", "", label="the thing")


def test_base_url_and_database_follow_port_and_folder() -> None:
    """Section D1: `https://localhost` and the port, except 443; `stoplist.db` in the folder."""
    found = load({}, env_file=NO_FILE, flags={"PORT": "443", "DATA_DIR": "/srv/x"})
    assert found.base_url == "https://localhost"
    assert found.database_url == "sqlite:////srv/x/stoplist.db"
    assert settings(PORT="4443").base_url == "https://localhost:4443"
    assert settings(PORT="4443", BASE_URL="https://a.example").base_url == "https://a.example"


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("STOPLIST_PROT", "STOPLIST_PORT"),
        ("STOPLIST_DATABSE_URL", "STOPLIST_DATABASE_URL"),
        ("STOPLIST_SECRET_KEYS", "STOPLIST_SECRET_KEY"),
        ("STOPLIST_HOST_FILE", "STOPLIST_HOST"),
    ],
)
@pytest.mark.parametrize("text", ["", "x"])
def test_an_unknown_variable_is_refused_with_the_closest_name(variable: str, nearest: str, text: str) -> None:
    """Section D1: an unknown variable stops the start, even an empty one."""
    assert refusal({variable: text}) == f"{variable} is not a setting; the closest name is {nearest}"


def test_an_unknown_name_cannot_forge_a_line() -> None:
    """A variable's name is external text like any other."""
    message = refusal({"STOPLIST_\u2028\udcff" + "X" * 5000: ""})
    assert message.isascii()
    assert len(message) < 200


def test_the_same_rules_apply_to_the_env_file(tmp_path: Path) -> None:
    """Section D1: unknown and malformed names are refused there too, even if a variable takes precedence."""
    path = env_file(tmp_path, "STOPLIST_PORT=abc\n")
    assert refusal({"STOPLIST_PORT": "1"}, path).startswith("STOPLIST_PORT in .env must be a whole number")
    path = env_file(tmp_path, "STOPLIST_PROT\n")
    assert refusal({}, path) == "STOPLIST_PROT in .env is not a setting; the closest name is STOPLIST_PORT"


def test_the_env_file_may_hold_other_variables(tmp_path: Path) -> None:
    """Other programs read the same file; values are taken as written, without substitution."""
    text = f"# a comment\n\nOTHER=1\nNAME\nSTOPLIST_HOST=\nSTOPLIST_PORT\nSTOPLIST_SECRET_KEY='{KEY}${{HOME}}'\n"
    assert load({}, env_file=env_file(tmp_path, "\ufeff" + text)).secret_keys == (KEY + "${HOME}",)


def test_a_malformed_line_of_the_env_file_is_refused(tmp_path: Path) -> None:
    """A missing quote must not unset a key."""
    path = env_file(tmp_path, f"OTHER=1\nSTOPLIST_SECRET_KEY='{KEY}\n")
    assert refusal({}, path) == ".env line 2 must be NAME=value or a comment"


def test_an_unreadable_env_file_is_refused(tmp_path: Path) -> None:
    """Only an absent file sets nothing."""
    (tmp_path / "folder").mkdir()
    assert refusal({}, tmp_path / "folder") == "folder cannot be read: Is a directory"
    (tmp_path / ".env").write_bytes(b"STOPLIST_HOST=\xff")
    assert refusal({}, tmp_path / ".env") == ".env cannot be read: not text in UTF-8"


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (KEY, (KEY,)),
        (KEY + "\n", (KEY,)),
        (KEY + "\r\n", (KEY,)),
        (f"{KEY}, {KEY[::-1]}\n", (KEY, KEY[::-1])),
    ],
)
def test_a_secret_may_come_from_a_file(tmp_path: Path, content: str, keys: tuple[str, ...]) -> None:
    """Section D1: a final newline is dropped."""
    (tmp_path / "key").write_bytes(content.encode())
    assert settings(SECRET_KEY_FILE=str(tmp_path / "key")).secret_keys == keys


def test_urls_with_passwords_may_come_from_files(tmp_path: Path) -> None:
    """Section D1: DATABASE_URL and LIMITS_URL too, and only those that hold a secret."""
    (tmp_path / "db").write_text("postgresql://h/d\n")
    (tmp_path / "limits").write_text("memory:\n")
    found = settings(DATABASE_URL_FILE=str(tmp_path / "db"), LIMITS_URL_FILE=str(tmp_path / "limits"))
    assert (found.database_url, found.limits_url) == ("postgresql://h/d", "memory:")
    assert {name for name in VARIABLE_NAMES if name.endswith("_FILE")} == {
        "STOPLIST_SECRET_KEY_FILE",
        "STOPLIST_DATABASE_URL_FILE",
        "STOPLIST_FEEDS_URL_FILE",
        "STOPLIST_LIMITS_URL_FILE",
        "STOPLIST_NOTICE_URL_FILE",
        "STOPLIST_NOTICE_SECRET_FILE",
        "STOPLIST_SMTP_URL_FILE",
    }


@pytest.mark.parametrize("content", ["", "\n", f"{KEY}\n\n", f"{KEY}\n{KEY}\n", "short"])
def test_a_bad_secret_file_is_refused_with_its_variable(tmp_path: Path, content: str) -> None:
    """Only one newline is dropped; an empty file does not count as unset."""
    (tmp_path / "key").write_text(content)
    message = refusal({"STOPLIST_SECRET_KEY_FILE": str(tmp_path / "key")})
    assert message.startswith("STOPLIST_SECRET_KEY_FILE must be keys of at least 32 characters each")


def test_an_unreadable_secret_file_is_refused_without_its_path(tmp_path: Path) -> None:
    """The path may be the key itself."""
    assert refusal({"STOPLIST_SECRET_KEY_FILE": KEY}) == (
        "STOPLIST_SECRET_KEY_FILE must name a readable file: No such file or directory"
    )
    (tmp_path / "key").write_bytes(b"\xff" * 40)
    assert "not text in UTF-8" in refusal({"STOPLIST_SECRET_KEY_FILE": str(tmp_path / "key")})


def test_both_forms_of_a_secret_at_once_are_refused(tmp_path: Path) -> None:
    """Section D1. Variables still override `.env`, in either form."""
    (tmp_path / "key").write_text(KEY)
    both = {"STOPLIST_SECRET_KEY": KEY, "STOPLIST_SECRET_KEY_FILE": str(tmp_path / "key")}
    assert refusal(both) == "STOPLIST_SECRET_KEY and STOPLIST_SECRET_KEY_FILE are both set: set one of them"
    path = env_file(tmp_path, f"STOPLIST_SECRET_KEY={KEY[::-1]}\n")
    in_file_form = {"STOPLIST_SECRET_KEY": "", "STOPLIST_SECRET_KEY_FILE": str(tmp_path / "key")}
    assert load(in_file_form, env_file=path).secret_keys == (KEY,)


@pytest.mark.parametrize(
    ("environ", "expected_text"),
    [
        ({"STOPLIST_WORKERS": "2"}, "STOPLIST_WORKERS or --workers must be 1 on SQLite, not 2:"),
        ({"STOPLIST_WORKERS": "2", "STOPLIST_LIMITS_URL": "redis://cache"}, "STOPLIST_WORKERS or --workers must be 1"),
        (POSTGRESQL | {"STOPLIST_WORKERS": "2"}, "--workers is above 1, and it is 2: the processes must count"),
        (POSTGRESQL | {"STOPLIST_LIMITS_URL": ""}, "STOPLIST_LIMITS_URL must be set with PostgreSQL"),
        (
            POSTGRESQL | {"STOPLIST_SECRET_KEY": ""},
            "STOPLIST_SECRET_KEY or STOPLIST_SECRET_KEY_FILE must be set",
        ),
        ({"STOPLIST_FEEDS_URL": "postgresql://db/feeds"}, "STOPLIST_DATABASE_URL must be postgresql://…"),
        ({"STOPLIST_TLS_CERT": "cert.pem"}, "STOPLIST_TLS_CERT and STOPLIST_TLS_KEY go together"),
        ({"STOPLIST_TLS_KEY": "key.pem"}, "STOPLIST_TLS_CERT and STOPLIST_TLS_KEY go together"),
        (
            {"STOPLIST_NOTICE_URL": "https://hooks.example"},
            "STOPLIST_NOTICE_URL and STOPLIST_NOTICE_SECRET go together",
        ),
        ({"STOPLIST_NOTICE_SECRET": "whsec_" + "A" * 32}, "STOPLIST_NOTICE_URL and STOPLIST_NOTICE_SECRET go together"),
        ({"STOPLIST_ENVIRONMENT": "production"}, "must be set in production, or STOPLIST_TRUSTED_PROXIES"),
        (
            {"STOPLIST_TLS_CERT": "absent/cert.pem", "STOPLIST_TLS_KEY": "absent/key.pem"},
            "STOPLIST_TLS_CERT (absent/cert.pem) must name a readable file: No such file or directory",
        ),
        (
            {"STOPLIST_ENVIRONMENT": "production", "STOPLIST_TRUSTED_PROXIES": "10.0.0.1"},
            "STOPLIST_BASE_URL must be set in production",
        ),
    ],
)
def test_settings_that_cannot_serve_are_refused_with_the_remedy(environ: dict[str, str], expected_text: str) -> None:
    """Section D1, Scale-out, Settings and HTTPS; other commands load the same settings."""
    assert expected_text in serve_refusal(environ)


@pytest.mark.parametrize(
    "environ",
    [
        POSTGRESQL,
        {"STOPLIST_LIMITS_URL": "memory:"},
        PRODUCTION | {"STOPLIST_TRUSTED_PROXIES": "10.0.0.1"},
    ],
)
def test_settings_that_can_serve_are_accepted(environ: dict[str, str]) -> None:
    """One process on either database; production behind proxies that terminate TLS."""
    server_settings(environ, env_file=NO_FILE)


def test_production_needs_a_readable_certificate(tmp_path: Path) -> None:
    """Section D1, HTTPS; an unreadable key is found at the start."""
    environ = dict(PRODUCTION)
    for name in ("TLS_CERT", "TLS_KEY"):
        (tmp_path / name).write_text("-----BEGIN")
        environ[f"STOPLIST_{name}"] = str(tmp_path / name)
    server_settings(environ, env_file=NO_FILE)
    (tmp_path / "TLS_KEY").unlink()
    assert serve_refusal(environ) == (
        f"STOPLIST_TLS_KEY ({tmp_path / 'TLS_KEY'}) must name a readable file: No such file or directory"
    )


def test_one_error_lists_all_wrong_settings(tmp_path: Path) -> None:
    """Malformed ones in every place, and contradictions between those that are well formed."""
    path = env_file(tmp_path, "STOPLIST_DRAIN_S=soon\nSTOPLIST_PROT=1\n")
    environ = POSTGRESQL | {"STOPLIST_SECRET_KEY": "", "STOPLIST_LIMITS_URL": "", "STOPLIST_PORT": "x"}
    with pytest.raises(SettingsError) as refused:
        server_settings(environ | {"STOPLIST_TLS_KEY": "key.pem"}, env_file=path, flags={"HOST": "a b"})
    assert [line.strip().partition(" must ")[0] for line in refused.value.text.splitlines()] == [
        "8 settings are wrong:",
        "STOPLIST_PROT in .env is not a setting; the closest name is STOPLIST_PORT",
        "STOPLIST_DRAIN_S in .env",
        "STOPLIST_PORT",
        "--host",
        "STOPLIST_LIMITS_URL",
        "STOPLIST_SECRET_KEY or STOPLIST_SECRET_KEY_FILE",
        "STOPLIST_TLS_CERT and STOPLIST_TLS_KEY go together: set both or neither",
        "STOPLIST_TLS_KEY (key.pem)",
    ]


def test_a_malformed_setting_contradicts_no_other() -> None:
    """While the URL of the limits is malformed, it is unknown where PostgreSQL has them."""
    assert serve_refusal(POSTGRESQL | {"STOPLIST_LIMITS_URL": "redis:"}).splitlines() == [
        "STOPLIST_LIMITS_URL must be memory: or redis://…, rediss://… or unix://…"
    ]


def test_the_value_that_was_given_is_repeated() -> None:
    """Quoted, printable and short."""
    assert refusal({"STOPLIST_PORT": "84 43"}) == "STOPLIST_PORT must be a whole number from 1 to 65535, not '84 43'"
    assert "not 'a\\nb\\u202e'; it holds a control character" in refusal({"STOPLIST_DATA_DIR": "a\nb\u202e"})
    assert len(refusal({"STOPLIST_PORT": "9" * 5000})) < 150


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SECRET_KEY", "hunter2"),
        ("DATABASE_URL", "mysql://hunter2"),
        ("LIMITS_URL", "http://hunter2"),
        ("BASE_URL", "https://ann:hunter2@optout.example"),
        ("HOST", "svc_cs_hunter2 "),
        ("TLS_KEY", "-----BEGIN PRIVATE KEY-----\nhunter2"),
    ],
)
def test_a_secret_value_is_not_repeated(name: str, text: str) -> None:
    """The value is that of a setting that holds one, or was pasted under another name."""
    assert "hunter2" not in refusal({f"STOPLIST_{name}": text})


@pytest.mark.parametrize("folder", ["data", "data/deeper"])
def test_a_file_in_place_of_a_folder_is_called_that(tmp_path: Path, folder: str) -> None:
    (tmp_path / "data").write_text("")
    text = serve_refusal({"STOPLIST_DATA_DIR": str(tmp_path / folder)})
    assert text.startswith("STOPLIST_DATA_DIR or --data-dir")
    assert text.endswith(f"must name a folder, but {tmp_path / 'data'} is a file")
    url = f"sqlite:///{tmp_path / folder / 'stoplist.db'}"
    assert serve_refusal({"STOPLIST_DATABASE_URL": url}).endswith(f"in a folder, but {tmp_path / 'data'} is a file")
    assert serve_refusal({"STOPLIST_DATABASE_URL": f"sqlite:///{tmp_path}"}) == (
        f"STOPLIST_DATABASE_URL must name a file, but {tmp_path} is a folder"
    )


def test_repr_shows_no_secrets() -> None:
    """A failing assertion or a debugger prints what it compares."""
    shown = repr(load(POSTGRESQL, env_file=NO_FILE))
    assert shown == "Settings(environment='development', data_dir='data', ...)"


FRAGMENTS = [text for _, text, _ in RIGHT] + [text for _, texts, _ in WRONG for text in texts]
NAMES = st.sampled_from(VARIABLE_NAMES) | st.text(string.ascii_uppercase + "_", max_size=9).map("STOPLIST_".__add__)
MARK = "hunter2"
SECRETS = ("SECRET_KEY", "DATABASE_URL", "LIMITS_URL", "NOTICE_URL", "NOTICE_SECRET", "SMTP_URL")


@given(environ=st.dictionaries(NAMES, st.text() | st.sampled_from(FRAGMENTS), max_size=4), at=st.integers(0, 40))
def test_any_variables_load_or_are_refused_without_secrets(environ: dict[str, str], at: int) -> None:
    """Section D1: no text crashes the start, and no error shows a key, a password or a URL with one."""
    for name in environ:
        if any(secret in name for secret in SECRETS):
            environ[name] = environ[name][:at] + MARK + environ[name][at:]
    try:
        assert isinstance(load(environ, env_file=NO_FILE), Settings)
    except SettingsError as error:
        assert all(name in error.text for name in environ if is_wrong(name, environ[name]))  # noqa: PT017
        assert MARK not in error.text  # noqa: PT017
        assert all(line.isprintable() for line in error.text.split("\n"))  # noqa: PT017


def is_wrong(name: str, text: str) -> bool:
    """Return whether this variable alone is refused."""
    try:
        load({name: text}, env_file=NO_FILE)
    except SettingsError:
        return True
    return False
