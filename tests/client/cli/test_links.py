"""The command `links`."""

from pathlib import Path

import pytest
from stoplist_client import LinkMaker

from stoplist import ids
from tests.client.cli.command_runner import RunCommand
from tests.client.partners import Partner

BASE_URL = "https://stop.example.com"
LINK_KEY = ids.new_secret(ids.LINK_KEY)
GROUP_ID = ids.new_id(ids.GROUP_ID)


@pytest.fixture(autouse=True)
def link_key(monkeypatch: pytest.MonkeyPatch, no_variables: None) -> None:
    monkeypatch.setenv("STOPLISTCLIENT_BASE_URL", BASE_URL)
    monkeypatch.setenv("STOPLISTCLIENT_LINK_KEY", LINK_KEY)


def test_rows_get_their_links_and_keep_their_bytes(cli: RunCommand, tmp_path: Path) -> None:
    """A row that is too short is filled up, so that the link stands in its own column."""
    path, out = tmp_path / "list.csv", tmp_path / "out.csv"
    path.write_bytes(b'\xef\xbb\xbfid;E-Mail;name\r\n1;ann@example.com;"A; \r\nB"\r\n2;Bob@Example.com\r\n3;;C\xe9\r\n')
    maker = LinkMaker(BASE_URL, LINK_KEY)
    ann, bob = (maker.url("email", one, group_id=GROUP_ID) for one in ("ann@example.com", "bob@example.com"))
    result = cli("links", str(path), "--to", str(out), "--group", GROUP_ID)
    assert (result.status, result.out_text) == (3, "")
    assert result.err_text == "stoplist-client: 3 rows: 1 without a valid address.\n"
    assert out.read_bytes() == (
        b"\xef\xbb\xbfid;E-Mail;name;unsubscribe_url\r\n"
        b'1;ann@example.com;"A; \r\nB";'
        + ann.encode()
        + b"\r\n2;Bob@Example.com;;"
        + bob.encode()
        + b"\r\n3;;C\xe9;\r\n"
    )


def test_links_go_to_stdout_without_a_file(cli: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_bytes(b"phone\n+442079460958")
    url = LinkMaker(BASE_URL, LINK_KEY).url("sms", "+442079460958", source="kiosk")
    result = cli("links", str(path), "--channel", "sms", "--as", "stop", "--source", "kiosk")
    assert (result.status, result.out_text) == (0, f"phone,stop\n+442079460958,{url}\n")


def test_wrong_usage_of_links_is_refused(cli: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list.csv"
    path.write_bytes(b"email,x\nann@example.com,1,2\n")
    cli("links").assert_failed(2, "CSV file")
    cli("links", str(path), "--try", "https://stop.example.com/u/x").assert_failed(2, "--try")
    cli("links", str(path), "--to", str(path), "--force").assert_failed(2, "same file")
    cli("links", str(path), "--to", str(tmp_path / "out.csv")).assert_failed(1, "line 2", "more cells")
    cli("links", str(path), "--as", "email").assert_failed(1, "--as")
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_file()) == ["list.csv"]
    cli("links", "--try", "http://stop.example.com/u/x").assert_failed(2, "https://")
    monkeypatch.setenv("STOPLISTCLIENT_LINK_KEY", LINK_KEY[:-1])
    cli("links", str(path)).assert_failed(2, "link_key")
    monkeypatch.delenv("STOPLISTCLIENT_LINK_KEY")
    cli("links", str(path)).assert_failed(1, "STOPLISTCLIENT_LINK_KEY")


def test_trying_a_link_opts_out_as_a_mailbox_provider_does(
    cli: RunCommand, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One POST; whatever is not 200 is a failure, and says nothing of the link."""
    made = partner.service.installation.json("link-key", "create", "--org", partner.org_slug)
    monkeypatch.setenv("STOPLISTCLIENT_CA_FILE", partner.service.ca_file)
    url = LinkMaker(partner.service.base_url, made["link_key"]).url("email", "tried@example.com")
    result = cli("links", "--try", url)
    assert (result.status, result.out_text) == (0, "200 You are unsubscribed.\n")
    with partner.client() as client:
        ((record,),) = [found.records for found in client.look_up("email", ["tried@example.com"])]
    assert (record.status, record.group_id, record.source) == ("unsubscribed", None, "one_click")
    failed = cli("links", "--try", url[:-1])
    failed.assert_failed(1, "404")
    assert url[:-1] not in failed.err_text
    monkeypatch.delenv("STOPLISTCLIENT_CA_FILE")
    cli("links", "--try", url).assert_failed(1, "certificate")
