"""Certificates: development certificates, those of an operator, and renewed ones."""

import asyncio
import json
import logging
import os
import shutil
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from stoplist.clock import Clock
from stoplist.errors import SettingsError
from stoplist.server.tls import CertificateWatch, ensure_development_certificate, server_context
from tests.constants import DAY_MS, PATIENCE_S
from tests.server.serving import Running, hello, in_uvloop, on_uvloop, serving, trusting

pytestmark = pytest.mark.interpreter

NOW_MS = 1_800_000_000_000
HOSTS = ["stoplist.example", "192.0.2.7"]


def client(data_dir: Path) -> ssl.SSLContext:
    """Return a strict client context that trusts only the authority of this folder."""
    context = trusting(data_dir)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def create_files(data_dir: Path, *, hosts: list[str] = HOSTS, now_ms: int = NOW_MS) -> dict[str, bytes]:
    """Ensure the certificate, as a start does, and return the PEM files."""
    ensure_development_certificate(data_dir, hosts, now_ms)
    return {path.name: path.read_bytes() for path in data_dir.iterdir() if path.suffix == ".pem"}


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def openssl(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, timeout=PATIENCE_S, check=False)


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is not installed")
OLD = ("-cipher", "ALL:@SECLEVEL=0")
SERVER_FILES = {"server.pem", "server-key.pem"}
AUTHORITY_FILES = {"ca.pem", "ca-key.pem"}


def test_the_first_start_creates_authority_and_certificate(tmp_path: Path) -> None:
    """The data folder is created if needed; only the owner can read the keys."""
    data_dir = tmp_path / "new" / "data"
    files = create_files(data_dir)
    assert files.keys() == SERVER_FILES | AUTHORITY_FILES
    for key in ("ca-key.pem", "server-key.pem"):
        assert stat.S_IMODE((data_dir / key).stat().st_mode) == 0o600
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_lock_and_keys_are_private_to_the_owner(tmp_path: Path, umask: int) -> None:
    """No umask changes this: another user who held the lock would keep any server from starting."""
    before = os.umask(umask)
    try:
        create_files(tmp_path)
    finally:
        os.umask(before)
    for name in ("tls.lock", "ca-key.pem", "server-key.pem"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@needs_openssl
def test_strict_verifiers_accept_the_certificate(tmp_path: Path) -> None:
    """OpenSSL with -x509_strict checks every extension that RFC 5280 requires."""
    create_files(tmp_path)
    arguments = ["-x509_strict", "-purpose", "sslserver", "-attime", NOW_MS // 1000, "-CAfile", tmp_path / "ca.pem"]
    for host in ("localhost", "stoplist.example"):
        checked = openssl("verify", *arguments, "-verify_hostname", host, tmp_path / "server.pem")
        assert checked.returncode == 0, checked.stderr
    for address in ("127.0.0.1", "::1", "192.0.2.7"):
        checked = openssl("verify", *arguments, "-verify_ip", address, tmp_path / "server.pem")
        assert checked.returncode == 0, checked.stderr
    assert openssl("verify", *arguments, "-verify_hostname", "evil.example", tmp_path / "server.pem").returncode


def test_host_names_are_normalized_and_deduplicated(tmp_path: Path) -> None:
    """HOST is often 0.0.0.0, which is left out, and BASE_URL often localhost; other names become A-labels."""
    create_files(tmp_path, hosts=["0.0.0.0", "::", "LOCALHOST.", "[::1]", "bücher.example"])  # noqa: S104
    names = json.loads((tmp_path / "server.json").read_bytes())["names"]
    assert names == ["localhost", "127.0.0.1", "::1", "xn--bcher-kva.example"]


def test_a_later_start_changes_nothing(tmp_path: Path) -> None:
    """Clients already trust the files that are there."""
    first = create_files(tmp_path)
    assert create_files(tmp_path, now_ms=NOW_MS + 300 * DAY_MS) == first


def test_a_start_with_a_valid_certificate_skips_cryptography(tmp_path: Path) -> None:
    """Importing `cryptography` would take longer than the rest of the start."""
    create_files(tmp_path)
    script = f"""
import sys
from pathlib import Path
from stoplist.server.tls import ensure_development_certificate, server_context
server_context(*ensure_development_certificate(Path({str(tmp_path)!r}), {HOSTS!r}, {NOW_MS}))
assert "stoplist.server.development_ca" not in sys.modules and "cryptography" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize("days", [336, 400])
def test_a_certificate_near_expiry_is_renewed(tmp_path: Path, days: int) -> None:
    """Within 30 days of it, or after it; clients that trust the authority notice nothing."""
    first = create_files(tmp_path)
    assert changed(first, create_files(tmp_path, now_ms=NOW_MS + days * DAY_MS)) == SERVER_FILES


def test_other_hosts_get_another_certificate(tmp_path: Path) -> None:
    """The authority stays the same."""
    first = create_files(tmp_path)
    assert changed(first, create_files(tmp_path, hosts=["other.example"])) == SERVER_FILES


@pytest.mark.parametrize("name", ["server.pem", "server-key.pem", "server.json"])
@pytest.mark.parametrize("content", [None, b"", b"not what it was\n"])
def test_a_damaged_certificate_is_replaced(tmp_path: Path, name: str, content: bytes | None) -> None:
    """Missing, empty or overwritten; the authority stays."""
    first = create_files(tmp_path)
    damage(tmp_path / name, content)
    second = create_files(tmp_path)
    assert changed(first, second) == SERVER_FILES
    server_context(tmp_path / "server.pem", tmp_path / "server-key.pem")


@pytest.mark.parametrize("name", ["ca.pem", "ca-key.pem"])
@pytest.mark.parametrize("content", [None, b"", b"not what it was\n"])
def test_a_damaged_authority_is_replaced(tmp_path: Path, name: str, content: bytes | None) -> None:
    """Together with everything that it had signed."""
    first = create_files(tmp_path)
    damage(tmp_path / name, content)
    assert changed(first, create_files(tmp_path)) == SERVER_FILES | AUTHORITY_FILES


def test_an_authority_with_another_key_is_replaced(tmp_path: Path) -> None:
    """The files of two folders may have been mixed up."""
    first = create_files(tmp_path / "one")
    create_files(tmp_path / "two")
    shutil.copy(tmp_path / "two" / "ca-key.pem", tmp_path / "one")
    assert changed(first, create_files(tmp_path / "one")) == SERVER_FILES | AUTHORITY_FILES


def test_the_authority_is_kept_until_it_expires(tmp_path: Path) -> None:
    """Near its end it signs for the rest of its life, and such a certificate is not reissued at every start."""
    first = create_files(tmp_path)
    late = create_files(tmp_path, now_ms=NOW_MS + 3640 * DAY_MS)
    assert changed(first, late) == SERVER_FILES
    assert create_files(tmp_path, now_ms=NOW_MS + 3641 * DAY_MS) == late
    after = create_files(tmp_path, now_ms=NOW_MS + 3651 * DAY_MS)
    assert changed(late, after) == SERVER_FILES | AUTHORITY_FILES


def test_a_clock_set_back_gets_a_valid_certificate(tmp_path: Path) -> None:
    """The first start may have seen a wrong date."""
    first = create_files(tmp_path)
    assert changed(first, create_files(tmp_path, now_ms=NOW_MS - DAY_MS)) == SERVER_FILES | AUTHORITY_FILES


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    """Each gets a matching certificate and key, the same as the others."""
    script = f"""
import hashlib
from pathlib import Path
from stoplist.server.tls import ensure_development_certificate, server_context
certificate, key = ensure_development_certificate(Path({str(tmp_path)!r}), {HOSTS!r}, {NOW_MS})
server_context(certificate, key)
print(hashlib.sha256(certificate.read_bytes()).hexdigest())
"""
    starts = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = {start.communicate(timeout=PATIENCE_S)[0] for start in starts}
    assert len(outputs) == 1
    assert all(start.returncode == 0 for start in starts)


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    """Here a file is in its place."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="STOPLIST_DATA_DIR"):
        ensure_development_certificate(tmp_path / "file", HOSTS, NOW_MS)


def test_an_invalid_host_name_is_a_settings_error(tmp_path: Path) -> None:
    """A label has at most 63 characters."""
    with pytest.raises(SettingsError, match="host name"):
        ensure_development_certificate(tmp_path, ["x" * 64 + ".example"], NOW_MS)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    """The error names the setting."""
    create_files(tmp_path)
    with pytest.raises(SettingsError, match=r"STOPLIST_TLS_KEY .* is not the key of STOPLIST_TLS_CERT"):
        server_context(tmp_path / "server.pem", tmp_path / "ca-key.pem")


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    """An RSA key with an elliptic-curve certificate."""
    create_files(tmp_path)
    key = tmp_path / "rsa.pem"
    key.write_bytes(in_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048), NoEncryption()))
    with pytest.raises(SettingsError, match="is not the key of"):
        server_context(tmp_path / "server.pem", key)


def test_a_key_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    """OpenSSL must not wait for input at the terminal."""
    create_files(tmp_path)
    key = tmp_path / "locked.pem"
    unlocked = load_pem_private_key((tmp_path / "server-key.pem").read_bytes(), password=None)
    key.write_bytes(in_pem(unlocked, BestAvailableEncryption(b"secret")))
    with pytest.raises(SettingsError, match="passphrase"):
        server_context(tmp_path / "server.pem", key)


@pytest.mark.parametrize("name", ["server.pem", "server-key.pem"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    """The text has its setting and the reason."""
    create_files(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(SettingsError, match=rf"^STOPLIST_TLS_\w+: .*{name} cannot be read \(No such file"):
        server_context(tmp_path / "server.pem", tmp_path / "server-key.pem")


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_files_without_a_certificate_are_refused(tmp_path: Path, content: bytes) -> None:
    create_files(tmp_path)
    (tmp_path / "server.pem").write_bytes(content)
    with pytest.raises(SettingsError, match="both must be PEM files"):
        server_context(tmp_path / "server.pem", tmp_path / "server-key.pem")


@needs_openssl
@in_uvloop
async def test_only_tls_1_2_and_newer_is_accepted(tmp_path: Path) -> None:
    """Source: docs/interface.md section D1. OpenSSL's own client offers older versions when told to."""
    real = real_certificate(tmp_path)
    async with serving(hello, tls=server_context(*real)) as server:
        for version in ("TLSv1.2", "TLSv1.3"):
            option = "-" + version.replace("v", "").replace(".", "_").lower()
            assert f"New, {version}, Cipher is".encode() in await s_client(server, tmp_path, option)
        for options in (("-tls1_1", *OLD), ("-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0")):
            refused = await s_client(server, tmp_path, *options)
            # The client sent its hello, and the server said why it closed the connection.
            assert b"New, (NONE), Cipher is (NONE)" in refused
            assert b" alert " in refused


@in_uvloop
async def test_only_http_1_1_is_negotiated(tmp_path: Path) -> None:
    """A client that also offers HTTP/2 must not use it."""
    real = real_certificate(tmp_path)
    offering = client(tmp_path)
    offering.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(hello, tls=server_context(*real)) as server:
        connection = await server.connect(offering)
        session = connection.writer.get_extra_info("ssl_object")
        assert session.selected_alpn_protocol() == "http/1.1"
        assert session.compression() is None


@needs_openssl
@in_uvloop
async def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    """New connections get it, open ones go on. Clients that send no host name get it too."""
    real = real_certificate(tmp_path)
    nameless = client(tmp_path)
    nameless.check_hostname = False
    context = server_context(*real)
    watch = CertificateWatch(context, *real)
    async with serving(hello, tls=context) as server:
        before = await server.connect(client(tmp_path))
        assert not watch.check()
        renew(tmp_path)
        assert watch.check()
        assert not watch.check()
        after = await server.connect(client(tmp_path))
        assert shown(after) == on_disk(tmp_path) != shown(before)
        assert after.writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
        for connection in (before, after):
            await connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await connection.answer()).body == b"hello"
        renew(tmp_path)
        assert watch.check()
        assert shown(await server.connect(nameless)) == on_disk(tmp_path)
        assert b"New, TLSv1.2, Cipher is" in await s_client(server, tmp_path, "-noservername", "-tls1_2")
        assert b"New, (NONE)" in await s_client(server, tmp_path, "-tls1_1", *OLD)


def test_a_half_written_pair_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once; the old certificate is used until the new one is complete."""
    real = real_certificate(tmp_path)

    async def main() -> None:
        context = server_context(*real)
        watch = CertificateWatch(context, *real)
        async with serving(hello, tls=context) as server:
            old, key = on_disk(tmp_path), real[1].read_bytes()
            renew(tmp_path)
            new_key = real[1].read_bytes()
            for half in (key, b"", new_key[:-20]):
                real[1].write_bytes(half)
                assert not watch.check()
                assert not watch.check()
                assert shown(await server.connect(client(tmp_path))) == old
            real[1].unlink()
            assert not watch.check()
            real[1].write_bytes(new_key)
            assert watch.check()
            assert shown(await server.connect(client(tmp_path))) == on_disk(tmp_path) != old

    with caplog.at_level(logging.WARNING):
        on_uvloop(main())
    assert [record.getMessage()[:46] for record in caplog.records] == ["The renewed certificate cannot be used yet: ST"]


def in_pem(key: Any, encryption: KeySerializationEncryption) -> bytes:
    written: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return written


def damage(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


def real_certificate(data_dir: Path) -> tuple[Path, Path]:
    """Create a certificate that is valid by the clock of the machine, which TLS clients use."""
    return ensure_development_certificate(data_dir, [], Clock().now_ms())


def renew(data_dir: Path) -> None:
    (data_dir / "server.json").unlink()
    real_certificate(data_dir)


def on_disk(data_dir: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert((data_dir / "server.pem").read_text())


def shown(connection: Any) -> bytes:
    certificate: bytes = connection.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return certificate


async def s_client(server: Running, data_dir: Path, *options: str) -> bytes:
    """Return what OpenSSL's client prints when it connects and disconnects at once."""
    target = ["-connect", f"127.0.0.1:{server.port}", "-CAfile", str(data_dir / "ca.pem")]
    process = await asyncio.create_subprocess_exec(
        "openssl", "s_client", *target, *options,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        return (await process.communicate())[0]
