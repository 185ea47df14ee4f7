"""login, logout, and where the key comes from."""

import json
import os
import pty
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import keyring.backend
import keyring.backends.fail
import keyring.backends.null
import keyring.errors
import pytest
from stoplist_client.cli import profile_selection
from stoplist_client.cli.profile import Profile
from stoplist_client.cli.profile_selection import load

from tests.client.cli.typing_commands import COMMAND, PATIENCE_S, Logged, Typed, environment, run, variables_of
from tests.client.partners import Partner

NewPartner = Callable[..., Partner]


def _login(partner: Partner, *more: str) -> list[str]:
    access = ["--base-url", partner.service.base_url, "--client-id", partner.key.client_id]
    return ["login", *access, "--ca-file", partner.service.ca_file, *more]


def test_a_key_is_stored_for_its_owner_alone(typed: Typed, partner: Partner, client_folder: Path) -> None:
    """After login a file of mode 0600 in a folder of mode 0700 has the profile; nothing printed holds the secret."""
    done = typed(
        *_login(partner, "--secret-stdin", "--org", partner.org_slug), stdin=partner.key.secret.encode() + b"\n"
    )
    assert done.status == 0, done
    assert partner.key.secret not in done.text + done.told
    path = client_folder / "profile-default.json"
    assert json.loads(path.read_text())["client_secret"] == partner.key.secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(client_folder.stat().st_mode) == 0o700
    assert [path.name for path in client_folder.iterdir()] == ["profile-default.json"]


def test_what_was_stored_is_used(typed: Typed, partner: Partner) -> None:
    """After login, in another folder, other commands work without anything else being said."""
    assert typed(*_login(partner, "--secret-stdin"), stdin=partner.key.secret.encode()).status == 0
    assert typed("unsubscribe", "email", "ann@example.com").status == 0
    assert "ann@example.com" in typed("look-up", "email", "Ann@example.com").text


def test_a_relative_ca_file_is_stored_as_an_absolute_one(
    typed: Typed, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands work in every folder, whichever login was typed in."""
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
    assert typed(*arguments, "--ca-file", ca.name, stdin=partner.key.secret.encode()).status == 0
    assert load(None).ca_file == str(ca)


def test_the_organization_is_learnt_from_a_record(typed: Typed, partner: Partner) -> None:
    """Where no organization is named, and the default one has records of whichever channel, the profile names it."""
    with partner.client() as client:
        client.unsubscribe("phone", ["+14155550100"])
    assert typed(*_login(partner, "--secret-stdin"), stdin=partner.key.secret.encode()).status == 0
    assert load(None).org_slug == partner.org_slug


def test_an_organization_that_no_record_shows_is_told(typed: Typed, partner: Partner) -> None:
    """Without a terminal it is said what will need it, and what to say then; with --org nothing is."""
    done = typed(*_login(partner, "--secret-stdin"), stdin=partner.key.secret.encode())
    assert done.status == 0
    assert "sync will need it" in done.told
    assert "--org" in done.told
    assert load(None).org_slug is None
    done = typed(*_login(partner, "--secret-stdin", "--org", partner.org_slug), stdin=partner.key.secret.encode())
    assert (done.status, done.told) == (0, "")


def test_a_key_without_a_default_group_is_tried_out_all_the_same(typed: Typed, new_partner: NewPartner) -> None:
    """A key that may not read is tried out by a submission, which needs a group that login does not."""
    partner = new_partner(may=frozenset(("unsubscribe",)), has_default_group=False)
    assert typed(*_login(partner, "--secret-stdin"), stdin=partner.key.secret.encode()).status == 0


def test_a_wrong_secret_is_told_and_not_stored(typed: Typed, partner: Partner, client_folder: Path) -> None:
    """A key that does not work leaves nothing behind, and an earlier profile as it was."""
    wrong = "svc_cs_" + "x" * 43
    done = typed(*_login(partner, "--secret-stdin"), stdin=wrong.encode())
    done.failed(1, "401 invalid_client")
    assert wrong not in done.told
    assert not client_folder.exists()


def test_a_wrong_secret_is_told_although_tokens_are_kept(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Tokens of earlier commands, which are good still, do not answer for a wrong secret."""
    path = log_in(partner)
    assert typed("unsubscribe", "email", "ann@example.com").status == 0
    before = path.read_bytes()
    typed(*_login(partner, "--secret-stdin"), stdin=b"svc_cs_" + b"x" * 43).failed(1, "401 invalid_client")
    assert path.read_bytes() == before


def test_a_wrong_organization_is_told_at_once(typed: Typed, partner: Partner, client_folder: Path) -> None:
    """Login asks the service about the organization, so that no command finds out later."""
    done = typed(*_login(partner, "--secret-stdin", "--org", "nobody"), stdin=partner.key.secret.encode())
    done.failed(1, "403 unauthorized_organization", "(request ")
    assert not client_folder.exists()


def test_a_wrong_group_is_told_at_once(typed: Typed, partner: Partner, new_partner: NewPartner) -> None:
    """Another organization's group is refused by login."""
    other = new_partner()
    done = typed(*_login(partner, "--secret-stdin", "--group", other.group_id), stdin=partner.key.secret.encode())
    done.failed(1, "403 unauthorized_organization")


def test_a_key_that_may_not_read_is_tried_out_too(typed: Typed, new_partner: NewPartner) -> None:
    """It is stored with a word on what it lacks; a wrong organization is still told; and nothing is submitted."""
    partner = new_partner(may=frozenset(("unsubscribe",)))
    secret = partner.key.secret.encode()
    typed(*_login(partner, "--secret-stdin", "--org", "nobody"), stdin=secret).failed(
        1, "403 unauthorized_organization"
    )
    done = typed(*_login(partner, "--secret-stdin"), stdin=secret)
    assert done.status == 0
    assert "lacks the permission `read`" in done.told
    assert typed("look-up", "email", "ann@example.com").status == 1


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
def test_wrong_usage_of_login_ends_with_2(typed: Typed, arguments: list[str], text: str) -> None:
    """What is missing, malformed or too much is named; a secret that was typed by mistake is not repeated."""
    done = typed("login", *arguments, stdin=b"svc_cs_abc")
    done.failed(2, text)
    assert "svc_cs_abc" not in done.told


@pytest.mark.parametrize("content", ["", "two\nlines\n", "\xff"])
def test_a_file_that_holds_no_secret_is_refused(typed: Typed, tmp_path: Path, content: str) -> None:
    """It must be the one line of the file, and its content is not repeated."""
    path = tmp_path / "secret"
    path.write_text(content, encoding="latin-1")
    path.chmod(0o600)
    done = typed("login", "--base-url", "https://localhost", "--client-id", "x", "--secret-file", str(path))
    done.failed(1, "does not hold a secret")
    assert "two" not in done.told


def test_a_server_that_is_not_trusted_is_told(typed: Typed, partner: Partner) -> None:
    """Without the file of its authority the server's certificate is refused, with the remedy."""
    arguments = ["login", "--base-url", partner.service.base_url, "--client-id", partner.key.client_id]
    typed(*arguments, "--secret-stdin", stdin=partner.key.secret.encode()).failed(1, "certificate")


def _typed_at_a_terminal(answers: list[tuple[str, str]], *options: str) -> str:
    """Everything that a login showed on its terminal, where each question was answered, in this order."""
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
def test_the_secret_is_typed_without_echo(partner: Partner, options: list[str]) -> None:
    """On a terminal login asks for everything; what is typed as secret is not shown, with --secret-stdin neither.

    A base address that cannot be one is asked for again before the secret is typed.
    """
    answers = [
        ("Base address", partner.service.base_url.replace("https", "http")),
        ("must be https", partner.service.base_url),
        ("client_id", partner.key.client_id),
        ("client_secret", partner.key.secret),
        ("Organization", partner.org_slug),
        ("Group", ""),
        ("certificates", partner.service.ca_file),
    ]
    shown = _typed_at_a_terminal(answers, *options)
    assert partner.org_slug in shown
    assert partner.key.secret not in shown
    assert load(None).org_slug == partner.org_slug


@pytest.mark.parametrize("is_named", [True, False])
def test_an_organization_that_no_record_shows_is_asked_for(partner: Partner, is_named: bool) -> None:
    """The service looks at what is typed: what is wrong is asked again, and nothing may be left empty."""
    answers = [
        ("client_secret", partner.key.secret),
        ("Organization", ""),
        ("Group", ""),
        ("key's default", "nobody"),
        ("403 unauthorized_organization", partner.org_slug if is_named else ""),
    ]
    shown = _typed_at_a_terminal(answers, *_login(partner)[1:])
    assert load(None).org_slug == (partner.org_slug if is_named else None)
    assert ("log in again with --org" in shown) is not is_named


def test_variables_alone_do(typed: Typed, partner: Partner, set_variables: Callable[[Partner], None]) -> None:
    """A container needs no login: with the variables every command works."""
    set_variables(partner)
    assert typed("unsubscribe", "email", "ann@example.com").status == 0
    assert typed("sync").status == 0
    assert typed("check", "email", "--any-group", stdin=b"bob@example.com\n").out == b"bob@example.com\n"


def test_the_secret_may_lie_in_a_file(
    typed: Typed,
    partner: Partner,
    set_variables: Callable[[Partner], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """STOPLISTCLIENT_CLIENT_SECRET_FILE replaces the secret itself; both are one too many."""
    set_variables(partner)
    path = tmp_path / "secret"
    path.write_text(f"{partner.key.secret}\n")
    path.chmod(0o600)
    monkeypatch.setenv("STOPLISTCLIENT_CLIENT_SECRET_FILE", str(path))
    typed("look-up", "email", "ann@example.com").failed(2, "both set")
    monkeypatch.delenv("STOPLISTCLIENT_CLIENT_SECRET")
    assert typed("look-up", "email", "ann@example.com").status == 0


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_secret_that_others_may_read_is_refused(
    typed: Typed,
    partner: Partner,
    set_variables: Callable[[Partner], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mode: int,
) -> None:
    """As a profile is, with the remedy; a file that another user put there has the mode that was chosen for it."""
    path = tmp_path / "secret"
    path.write_text(partner.key.secret)
    path.chmod(mode)
    done = typed(*_login(partner, "--secret-file", str(path)))
    done.failed(1, f"{path} holds a secret and others may read it: chmod 600 it")
    set_variables(partner)
    monkeypatch.delenv("STOPLISTCLIENT_CLIENT_SECRET")
    monkeypatch.setenv("STOPLISTCLIENT_CLIENT_SECRET_FILE", str(path))
    typed("look-up", "email", "ann@example.com").failed(1, "chmod 600")
    monkeypatch.setattr(profile_selection, "_this_user", lambda: os.geteuid() + 1)
    assert typed("look-up", "email", "ann@example.com").status == 0


def test_a_secret_may_come_out_of_a_pipe(partner: Partner, client_folder: Path) -> None:
    """As from a shell's <(…) or as /dev/stdin, whatever mode the pipe shows."""
    done = run(*_login(partner, "--secret-file", "/dev/stdin"), stdin=partner.key.secret.encode())
    assert done.status == 0, done


@pytest.mark.parametrize("missing", ["BASE_URL", "CLIENT_ID", "CLIENT_SECRET"])
def test_some_of_the_variables_are_not_mixed_with_a_profile(
    typed: Typed, partner: Partner, log_in: Logged, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """A secret never goes to another service than the one it was given for."""
    log_in(partner)
    for name, value in variables_of(partner).items():
        if not name.endswith(missing):
            monkeypatch.setenv(name, value)
    typed("look-up", "email", "ann@example.com").failed(2, f"STOPLISTCLIENT_{missing}")


def test_a_named_profile_goes_before_the_variables(
    typed: Typed, new_partner: NewPartner, log_in: Logged, set_variables: Callable[[Partner], None]
) -> None:
    """--profile is said at the moment; the variables may have been set long ago."""
    theirs, ours = new_partner(), new_partner()
    set_variables(theirs)
    log_in(ours, name="ours")
    assert load("ours").client_id == ours.key.client_id
    assert load(None).client_id == theirs.key.client_id


def test_a_profile_and_a_key_in_variables_are_at_odds(
    typed: Typed, partner: Partner, set_variables: Callable[[Partner], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is taken silently."""
    set_variables(partner)
    monkeypatch.setenv("STOPLISTCLIENT_PROFILE", "other")
    typed("look-up", "email", "ann@example.com").failed(2, "unset one of them")


def test_an_unknown_profile_is_named_with_those_that_are_there(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """A misspelt profile is told."""
    log_in(partner, name="staging")
    typed("look-up", "email", "a@example.com", "--profile", "stagin").failed(1, "'stagin'", "there is staging")


def test_another_organization_takes_the_group_of_the_profile_away(
    partner: Partner, log_in: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STOPLISTCLIENT_ORG replaces the organization of a profile, and with it what was said of its groups."""
    log_in(partner, group_id=partner.group_id)
    assert load(None).group_id == partner.group_id
    monkeypatch.setenv("STOPLISTCLIENT_ORG", "other")
    profile = load(None)
    assert (profile.org_slug, profile.group_id) == ("other", None)


def test_a_profile_that_others_may_read_is_refused(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Whoever could read it may hold the secret: the text says how to mend that."""
    log_in(partner).chmod(0o644)
    done = typed("look-up", "email", "ann@example.com")
    done.failed(1, "The profile", "is for its owner alone, and others may read it: chmod 600 it")
    assert "token" not in done.told
    assert "MemoryStore" not in done.told


def test_a_profile_that_cannot_be_read_or_written_is_told_as_such(
    typed: Typed, partner: Partner, client_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the place and what the system says, in words that fit a profile."""
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("STOPLISTCLIENT_DIR", str(tmp_path / "occupied"))
    done = typed(*_login(partner, "--secret-stdin"), stdin=partner.key.secret.encode())
    done.failed(1, "The profile", "STOPLISTCLIENT_DIR")
    assert "MemoryStore" not in done.told
    monkeypatch.setenv("STOPLISTCLIENT_DIR", str(client_folder))
    (client_folder / "profile-default.json").mkdir(parents=True)
    typed("look-up", "email", "ann@example.com").failed(1, "The profile", "is not a file")


def test_a_broken_profile_is_refused_without_its_content(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Half a file, as from another program, is told by its path alone."""
    path = log_in(partner)
    path.write_bytes(path.read_bytes()[:-20])
    done = typed("look-up", "email", "ann@example.com", "--debug")
    assert done.status == 1
    assert "is not a profile any more" in done.told
    assert partner.key.secret not in done.told


def test_a_profile_shows_no_secret(partner: Partner, log_in: Logged) -> None:
    """repr, as in a traceback or a log line, holds nothing of it."""
    log_in(partner)
    profile: Profile = load(None)
    assert partner.key.secret not in f"{profile!r} {profile}"


def test_logout_forgets_secret_and_tokens(typed: Typed, partner: Partner, log_in: Logged, client_folder: Path) -> None:
    """Neither stands in any file afterwards; the profile is gone."""
    log_in(partner)
    assert typed("unsubscribe", "email", "ann@example.com").status == 0
    assert b"svc_rt_" in _everything(client_folder)
    assert typed("logout").status == 0
    assert b"svc_" not in _everything(client_folder)
    typed("look-up", "email", "ann@example.com").failed(1, "Not logged in")
    typed("logout").failed(1, "no profile 'default'")


def test_logout_leaves_the_tokens_that_another_profile_uses(
    typed: Typed, partner: Partner, log_in: Logged, client_folder: Path
) -> None:
    """Two profiles of one key share its tokens."""
    log_in(partner)
    log_in(partner, name="reminders", group_id=partner.other_group_id)
    assert typed("unsubscribe", "email", "ann@example.com").status == 0
    assert typed("logout", "--profile", "reminders").status == 0
    assert b"svc_rt_" in _everything(client_folder)


def test_logout_says_that_the_mirror_stays(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """It holds addresses, so somebody has to think of it."""
    log_in(partner)
    assert typed("sync").status == 0
    assert "mirror-default.db" in typed("logout").text


def _everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


class _Kept(keyring.backend.KeyringBackend):
    """A keyring of this process: a system's own is what a test must not touch."""

    priority = -1  # nobody else takes it for the system's

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise keyring.errors.PasswordDeleteError


@pytest.fixture
def our_keyring() -> Iterator[_Kept]:
    """The keyring of this process while the test lasts."""
    before, ours = keyring.get_keyring(), _Kept()
    keyring.set_keyring(ours)
    yield ours
    keyring.set_keyring(before)


def test_the_keyring_keeps_secret_and_tokens(
    typed: Typed, partner: Partner, client_folder: Path, our_keyring: _Kept
) -> None:
    """With --keyring no file holds anything secret, commands work, and logout clears the keyring."""
    assert typed(*_login(partner, "--secret-stdin", "--keyring"), stdin=partner.key.secret.encode()).status == 0
    assert typed("unsubscribe", "email", "ann@example.com").status == 0
    assert b"svc_cs_" not in _everything(client_folder)
    assert b"svc_rt_" not in _everything(client_folder)
    assert len(our_keyring.kept) == 2
    assert typed("logout").status == 0
    assert our_keyring.kept == {}


@pytest.mark.parametrize(
    "useless", [keyring.backends.fail.Keyring, keyring.backends.null.Keyring], ids=["fail", "null"]
)
def test_a_keyring_that_keeps_nothing_is_told(
    typed: Typed,
    partner: Partner,
    client_folder: Path,
    our_keyring: _Kept,
    useless: type[keyring.backend.KeyringBackend],
) -> None:
    """Where there is no keyring, as on a server, or one that forgets, login says so and stores nothing."""
    keyring.set_keyring(useless())
    done = typed(*_login(partner, "--secret-stdin", "--keyring"), stdin=partner.key.secret.encode())
    done.failed(1, "The keyring did not keep the secret", "without --keyring")
    assert not (client_folder / "profile-default.json").exists()


def test_login_as_a_process(partner: Partner, client_folder: Path, tmp_path: Path) -> None:
    """The command itself, with the secret in a file, and then without it."""
    path = tmp_path / "secret"
    path.write_text(partner.key.secret)
    path.chmod(0o600)
    done = run(*_login(partner, "--secret-file", str(path), "--org", partner.org_slug))
    assert (done.status, done.err) == (0, b""), done
    assert run("logout").status == 0
    run("logout").failed(1, "no profile")
