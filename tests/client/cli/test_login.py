"""The commands `login` and `logout`, and the selection of a profile."""

import json
import os
import pty
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import keyring
import keyring.backend
import keyring.backends.fail
import keyring.backends.null
import keyring.errors
import pytest
from stoplist_client.cli import profile_selection
from stoplist_client.cli.profile import Profile
from stoplist_client.cli.profile_selection import load_profile

from tests.client.cli.command_runner import (
    COMMAND,
    LogIn,
    RunCommand,
    environment,
    run_process,
    variables_of,
)
from tests.client.memory_keyring import MemoryKeyring
from tests.client.partners import Partner
from tests.constants import PATIENCE_S

NewPartner = Callable[..., Partner]


def _login(partner: Partner, *more: str) -> list[str]:
    access = ["--base-url", partner.service.base_url, "--client-id", partner.key.client_id]
    return ["login", *access, "--ca-file", partner.service.ca_file, *more]


def test_profile_is_readable_by_its_owner_only(cli: RunCommand, partner: Partner, client_folder: Path) -> None:
    """The file has mode 0600, its folder 0700, and no output contains the secret."""
    result = cli(
        *_login(partner, "--secret-stdin", "--org", partner.org_slug), stdin=partner.key.client_secret.encode() + b"\n"
    )
    assert result.status == 0, result
    assert partner.key.client_secret not in result.out_text + result.err_text
    path = client_folder / "profile-default.json"
    assert json.loads(path.read_text())["client_secret"] == partner.key.client_secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(client_folder.stat().st_mode) == 0o700
    assert [path.name for path in client_folder.iterdir()] == ["profile-default.json"]


def test_stored_profile_is_used(cli: RunCommand, partner: Partner) -> None:
    assert cli(*_login(partner, "--secret-stdin"), stdin=partner.key.client_secret.encode()).status == 0
    assert cli("unsubscribe", "email", "ann@example.com").status == 0
    assert "ann@example.com" in cli("look-up", "email", "Ann@example.com").out_text


def test_relative_ca_file_is_stored_as_absolute(
    cli: RunCommand, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands work in every folder, not only in that of login."""
    ca = Path(partner.service.ca_file)
    monkeypatch.chdir(ca.parent)
    arguments = [
        "login",
        "--base-url",
        partner.service.base_url,
        "--client-id",
        partner.key.client_id,
        "--secret-stdin",
    ]
    assert cli(*arguments, "--ca-file", ca.name, stdin=partner.key.client_secret.encode()).status == 0
    assert load_profile(None).ca_file == str(ca)


def test_organization_is_taken_from_a_record(cli: RunCommand, partner: Partner) -> None:
    """If no organization is named, the profile stores the default one, as soon as any channel has a record of it."""
    with partner.client() as client:
        client.unsubscribe("phone", ["+14155550100"])
    assert cli(*_login(partner, "--secret-stdin"), stdin=partner.key.client_secret.encode()).status == 0
    assert load_profile(None).org_slug == partner.org_slug


def test_unknown_default_organization_is_reported(cli: RunCommand, partner: Partner) -> None:
    """Without a terminal, the notice says what needs the slug and how to set it."""
    result = cli(*_login(partner, "--secret-stdin"), stdin=partner.key.client_secret.encode())
    assert result.status == 0
    assert "sync needs it" in result.err_text
    assert "--org" in result.err_text
    assert load_profile(None).org_slug is None
    result = cli(
        *_login(partner, "--secret-stdin", "--org", partner.org_slug), stdin=partner.key.client_secret.encode()
    )
    assert (result.status, result.err_text) == (0, "")


def test_login_needs_no_default_group(cli: RunCommand, new_partner: NewPartner) -> None:
    """A key that may not read is checked by a submission, which would need a default group."""
    partner = new_partner(permissions=frozenset(("unsubscribe",)), has_default_group=False)
    assert cli(*_login(partner, "--secret-stdin"), stdin=partner.key.client_secret.encode()).status == 0


def test_wrong_secret_is_not_stored(cli: RunCommand, partner: Partner, client_folder: Path) -> None:
    wrong = "svc_cs_" + "x" * 43
    result = cli(*_login(partner, "--secret-stdin"), stdin=wrong.encode())
    result.assert_failed(1, "401 invalid_client")
    assert wrong not in result.err_text
    assert not client_folder.exists()


def test_stored_tokens_do_not_hide_a_wrong_secret(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """The earlier profile stays unchanged."""
    path = log_in(partner)
    assert cli("unsubscribe", "email", "ann@example.com").status == 0
    before = path.read_bytes()
    cli(*_login(partner, "--secret-stdin"), stdin=b"svc_cs_" + b"x" * 43).assert_failed(1, "401 invalid_client")
    assert path.read_bytes() == before


def test_wrong_organization_is_refused_by_login(cli: RunCommand, partner: Partner, client_folder: Path) -> None:
    """Nothing is stored."""
    result = cli(*_login(partner, "--secret-stdin", "--org", "nobody"), stdin=partner.key.client_secret.encode())
    result.assert_failed(1, "403 unauthorized_organization", "(request ")
    assert not client_folder.exists()


def test_group_of_another_organization_is_refused_by_login(
    cli: RunCommand, partner: Partner, new_partner: NewPartner
) -> None:
    other = new_partner()
    result = cli(
        *_login(partner, "--secret-stdin", "--group", other.group_id), stdin=partner.key.client_secret.encode()
    )
    result.assert_failed(1, "403 unauthorized_organization")


def test_key_without_read_permission_is_checked_too(cli: RunCommand, new_partner: NewPartner) -> None:
    """It is stored with a notice; a wrong organization is refused; nothing is submitted."""
    partner = new_partner(permissions=frozenset(("unsubscribe",)))
    secret = partner.key.client_secret.encode()
    cli(*_login(partner, "--secret-stdin", "--org", "nobody"), stdin=secret).assert_failed(
        1, "403 unauthorized_organization"
    )
    result = cli(*_login(partner, "--secret-stdin"), stdin=secret)
    assert result.status == 0
    assert "does not have the permission `read`" in result.err_text
    assert cli("look-up", "email", "ann@example.com").status == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--client-id", "x"], "--base-url"),
        (["--base-url", "https://localhost"], "--client-id"),
        (["--base-url", "https://localhost", "--client-id", "x"], "--secret-stdin"),
        (["--secret-stdin", "--secret-file", "f"], "not both"),
        (["--base-url", "http://localhost", "--client-id", "x", "--secret-stdin"], "https://"),
        (["--base-url", "https://localhost/api", "--client-id", "x", "--secret-stdin"], "https://"),
        (["--profile", "../x"], "--profile"),
        (["svc_cs_abc"], "1 argument too many"),
        (["--secret", "svc_cs_abc"], "--secret"),
    ],
)
def test_wrong_usage_of_login_exits_with_2(cli: RunCommand, arguments: list[str], text: str) -> None:
    """A secret that was typed by mistake is not repeated."""
    result = cli("login", *arguments, stdin=b"svc_cs_abc")
    result.assert_failed(2, text)
    assert "svc_cs_abc" not in result.err_text


@pytest.mark.parametrize("content", ["", "two\nlines\n", "\xff"])
def test_file_without_a_secret_is_refused(cli: RunCommand, tmp_path: Path, content: str) -> None:
    """The secret must be the only line of the file. The content is not repeated."""
    path = tmp_path / "secret"
    path.write_text(content, encoding="latin-1")
    path.chmod(0o600)
    result = cli("login", "--base-url", "https://localhost", "--client-id", "x", "--secret-file", str(path))
    result.assert_failed(1, "does not contain a secret")
    assert "two" not in result.err_text


def test_untrusted_certificate_is_reported(cli: RunCommand, partner: Partner) -> None:
    arguments = ["login", "--base-url", partner.service.base_url, "--client-id", partner.key.client_id]
    cli(*arguments, "--secret-stdin", stdin=partner.key.client_secret.encode()).assert_failed(1, "certificate")


def _login_on_terminal(answers: list[tuple[str, str]], *options: str) -> str:
    """Run login on a terminal, answer these questions in order, and return everything that was shown."""
    main_end, terminal = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "login", *options],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment(),
        start_new_session=True,
    )
    os.close(terminal)
    shown = ""
    try:
        for question, answer in answers:
            asked = ""
            while question not in asked or not asked.rstrip(" ").endswith(":"):
                asked += os.read(main_end, 1024).decode()
            shown += asked
            os.write(main_end, answer.encode() + b"\n")
        while more := os.read(main_end, 1024):
            shown += more.decode()
    except OSError:  # its last writer is gone
        pass
    os.close(main_end)
    assert process.wait(PATIENCE_S) == 0, shown
    assert "Logged in as" in shown
    return shown


@pytest.mark.parametrize("options", [[], ["--secret-stdin"]])
def test_secret_is_typed_without_echo(partner: Partner, options: list[str]) -> None:
    """This holds with --secret-stdin too. An invalid base address is asked for again before the secret is typed."""
    answers = [
        ("Base address", partner.service.base_url.replace("https", "http")),
        ("must be https", partner.service.base_url),
        ("client_id", partner.key.client_id),
        ("client_secret", partner.key.client_secret),
        ("Organization", partner.org_slug),
        ("Group", ""),
        ("certificates", partner.service.ca_file),
    ]
    shown = _login_on_terminal(answers, *options)
    assert partner.org_slug in shown
    assert partner.key.client_secret not in shown
    assert load_profile(None).org_slug == partner.org_slug


@pytest.mark.parametrize("is_named", [True, False])
def test_unknown_default_organization_is_asked_for(partner: Partner, is_named: bool) -> None:
    """A slug that the service refuses is asked for again; an empty answer skips the question."""
    answers = [
        ("client_secret", partner.key.client_secret),
        ("Organization", ""),
        ("Group", ""),
        ("sync needs it", "nobody"),
        ("403 unauthorized_organization", partner.org_slug if is_named else ""),
    ]
    shown = _login_on_terminal(answers, *_login(partner)[1:])
    assert load_profile(None).org_slug == (partner.org_slug if is_named else None)
    assert ("log in again with --org" in shown) is not is_named


def test_variables_replace_login(cli: RunCommand, partner: Partner, set_variables: Callable[[Partner], None]) -> None:
    set_variables(partner)
    assert cli("unsubscribe", "email", "ann@example.com").status == 0
    assert cli("sync").status == 0
    assert cli("check", "email", "--any-group", stdin=b"bob@example.com\n").out == b"bob@example.com\n"


def test_secret_may_come_from_a_file(
    cli: RunCommand,
    partner: Partner,
    set_variables: Callable[[Partner], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Setting both STOPLISTCLIENT_CLIENT_SECRET and STOPLISTCLIENT_CLIENT_SECRET_FILE is refused."""
    set_variables(partner)
    path = tmp_path / "secret"
    path.write_text(f"{partner.key.client_secret}\n")
    path.chmod(0o600)
    monkeypatch.setenv("STOPLISTCLIENT_CLIENT_SECRET_FILE", str(path))
    cli("look-up", "email", "ann@example.com").assert_failed(2, "both set")
    monkeypatch.delenv("STOPLISTCLIENT_CLIENT_SECRET")
    assert cli("look-up", "email", "ann@example.com").status == 0


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_secret_file_readable_by_others_is_refused(
    cli: RunCommand,
    partner: Partner,
    set_variables: Callable[[Partner], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mode: int,
) -> None:
    """The mode of another user's file is not checked: this user cannot change it."""
    path = tmp_path / "secret"
    path.write_text(partner.key.client_secret)
    path.chmod(mode)
    result = cli(*_login(partner, "--secret-file", str(path)))
    result.assert_failed(1, f"{path} contains a secret, but other users may read it: chmod 600 it")
    set_variables(partner)
    monkeypatch.delenv("STOPLISTCLIENT_CLIENT_SECRET")
    monkeypatch.setenv("STOPLISTCLIENT_CLIENT_SECRET_FILE", str(path))
    cli("look-up", "email", "ann@example.com").assert_failed(1, "chmod 600")
    monkeypatch.setattr(profile_selection, "_this_user", lambda: os.geteuid() + 1)
    assert cli("look-up", "email", "ann@example.com").status == 0


def test_secret_may_come_from_a_pipe(partner: Partner, client_folder: Path) -> None:
    """The mode of /dev/stdin or of a shell's <(…) is not checked."""
    result = run_process(*_login(partner, "--secret-file", "/dev/stdin"), stdin=partner.key.client_secret.encode())
    assert result.status == 0, result


@pytest.mark.parametrize("missing", ["BASE_URL", "CLIENT_ID", "CLIENT_SECRET"])
def test_variables_are_not_mixed_with_a_profile(
    cli: RunCommand, partner: Partner, log_in: LogIn, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """A secret must not go to another service than the one that issued it."""
    log_in(partner)
    for name, value in variables_of(partner).items():
        if not name.endswith(missing):
            monkeypatch.setenv(name, value)
    cli("look-up", "email", "ann@example.com").assert_failed(2, f"STOPLISTCLIENT_{missing}")


def test_named_profile_overrides_variables(
    cli: RunCommand, new_partner: NewPartner, log_in: LogIn, set_variables: Callable[[Partner], None]
) -> None:
    theirs, ours = new_partner(), new_partner()
    set_variables(theirs)
    log_in(ours, name="ours")
    assert load_profile("ours").client_id == ours.key.client_id
    assert load_profile(None).client_id == theirs.key.client_id


def test_profile_variable_conflicts_with_key_variables(
    cli: RunCommand, partner: Partner, set_variables: Callable[[Partner], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(partner)
    monkeypatch.setenv("STOPLISTCLIENT_PROFILE", "other")
    cli("look-up", "email", "ann@example.com").assert_failed(2, "unset one of them")


def test_unknown_profile_lists_stored_profiles(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    log_in(partner, name="staging")
    cli("look-up", "email", "a@example.com", "--profile", "stagin").assert_failed(1, "'stagin'", "stored are staging")


def test_other_organization_drops_the_group_of_the_profile(
    partner: Partner, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STOPLISTCLIENT_ORG replaces the organization, and the group belongs to the organization of the profile."""
    log_in(partner, group_id=partner.group_id)
    assert load_profile(None).group_id == partner.group_id
    monkeypatch.setenv("STOPLISTCLIENT_ORG", "other")
    profile = load_profile(None)
    assert (profile.org_slug, profile.group_id) == ("other", None)


def test_profile_readable_by_others_is_refused(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """The message says how to correct the mode."""
    log_in(partner).chmod(0o644)
    result = cli("look-up", "email", "ann@example.com")
    result.assert_failed(1, "The profile", "contains a secret, but other users may read it: chmod 600 it")
    assert "token" not in result.err_text
    assert "MemoryStore" not in result.err_text


def test_profile_errors_are_not_about_tokens(
    cli: RunCommand, partner: Partner, client_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A profile that cannot be read or written is reported as a profile, with its path and the system's message."""
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("STOPLISTCLIENT_DIR", str(tmp_path / "occupied"))
    result = cli(*_login(partner, "--secret-stdin"), stdin=partner.key.client_secret.encode())
    result.assert_failed(1, "The profile", "STOPLISTCLIENT_DIR")
    assert "MemoryStore" not in result.err_text
    monkeypatch.setenv("STOPLISTCLIENT_DIR", str(client_folder))
    (client_folder / "profile-default.json").mkdir(parents=True)
    cli("look-up", "email", "ann@example.com").assert_failed(1, "The profile", "is not a file")


def test_damaged_profile_is_refused_without_its_content(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    path = log_in(partner)
    path.write_bytes(path.read_bytes()[:-20])
    result = cli("look-up", "email", "ann@example.com", "--debug")
    assert result.status == 1
    assert "is damaged" in result.err_text
    assert partner.key.client_secret not in result.err_text


def test_profile_shows_no_secret(partner: Partner, log_in: LogIn) -> None:
    """Neither repr nor str contains the secret."""
    log_in(partner)
    profile: Profile = load_profile(None)
    assert partner.key.client_secret not in f"{profile!r} {profile}"


def test_logout_deletes_secret_and_tokens(
    cli: RunCommand, partner: Partner, log_in: LogIn, client_folder: Path
) -> None:
    log_in(partner)
    assert cli("unsubscribe", "email", "ann@example.com").status == 0
    assert b"svc_rt_" in _all_bytes(client_folder)
    assert cli("logout").status == 0
    assert b"svc_" not in _all_bytes(client_folder)
    cli("look-up", "email", "ann@example.com").assert_failed(1, "Not logged in")
    cli("logout").assert_failed(1, "no profile 'default'")


def test_logout_keeps_tokens_of_another_profile(
    cli: RunCommand, partner: Partner, log_in: LogIn, client_folder: Path
) -> None:
    """Two profiles of one key share its tokens."""
    log_in(partner)
    log_in(partner, name="reminders", group_id=partner.other_group_id)
    assert cli("unsubscribe", "email", "ann@example.com").status == 0
    assert cli("logout", "--profile", "reminders").status == 0
    assert b"svc_rt_" in _all_bytes(client_folder)


def test_logout_mentions_the_mirror(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """The mirror is kept, and contains addresses."""
    log_in(partner)
    assert cli("sync").status == 0
    assert "mirror-default.db" in cli("logout").out_text


def _all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def test_keyring_keeps_secret_and_tokens(
    cli: RunCommand, partner: Partner, client_folder: Path, memory_keyring: MemoryKeyring
) -> None:
    """--keyring keeps the secret out of every file; commands work, and logout clears the keyring."""
    assert cli(*_login(partner, "--secret-stdin", "--keyring"), stdin=partner.key.client_secret.encode()).status == 0
    assert cli("unsubscribe", "email", "ann@example.com").status == 0
    assert b"svc_cs_" not in _all_bytes(client_folder)
    assert b"svc_rt_" not in _all_bytes(client_folder)
    assert len(memory_keyring.held) == 2
    assert cli("logout").status == 0
    assert memory_keyring.held == {}


@pytest.mark.parametrize(
    "useless", [keyring.backends.fail.Keyring, keyring.backends.null.Keyring], ids=["fail", "null"]
)
def test_useless_keyring_is_refused(
    cli: RunCommand,
    partner: Partner,
    client_folder: Path,
    memory_keyring: MemoryKeyring,
    useless: type[keyring.backend.KeyringBackend],
) -> None:
    """A keyring that is unavailable, as on a server, or keeps nothing is reported, and nothing is stored."""
    keyring.set_keyring(useless())
    result = cli(*_login(partner, "--secret-stdin", "--keyring"), stdin=partner.key.client_secret.encode())
    result.assert_failed(1, "The keyring did not keep the secret", "without --keyring")
    assert not (client_folder / "profile-default.json").exists()


def test_login_runs_as_a_process(partner: Partner, client_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(partner.key.client_secret)
    path.chmod(0o600)
    result = run_process(*_login(partner, "--secret-file", str(path), "--org", partner.org_slug))
    assert (result.status, result.err) == (0, b""), result
    assert run_process("logout").status == 0
    run_process("logout").assert_failed(1, "no profile")
