"""`stoplist serve --demo`: what a new user sees, and that the printed commands work (section D9)."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.e2e.server_process import Installation, RunningServer, run_program

# In CI a missing curl fails the tests.
needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None and not os.environ.get("CI"),
    reason="curl, which the printed lines call, is not installed",
)
LAST_LINE = "Stop with Ctrl+C."


def printed_text(server: RunningServer) -> str:
    """Return everything it prints for people."""
    assert server.out.wait_for(LAST_LINE)
    return server.out.text


def commands(text: str) -> list[str]:
    """Return the commands to paste."""
    return [
        line.strip() for line in text.splitlines() if re.match(r"  \S*(curl|TOKEN=|key create)|  \S+ key create", line)
    ]


def sign_in_link(server: RunningServer) -> str:
    """Return the only link that it prints."""
    (link,) = re.findall(r"https://\S+/settings/sign-in/link\?token=\S+", printed_text(server))
    return str(link)


def run_pasted(installation: Installation, lines: list[str]) -> str:
    """Run these lines in a shell, in the folder of the server, and return what it prints."""
    given, folder = "\n".join(lines), installation.folder
    done = run_program("bash", "-e", folder=folder, variables=installation.variables, given=given)
    assert (done.status, done.err) == (0, ""), done
    return done.out


@needs_curl
@pytest.mark.parametrize("folder", ["data", "a folder with 'quotes'"])
def test_the_printed_commands_of_a_first_start_work(installation: Installation, folder: str) -> None:
    """A token in a variable, two opt-outs, a list of everyone who opted out; `--cacert` names the authority."""
    with installation.serving("--demo", "--data-dir", folder) as server:
        lines = commands(printed_text(server))
        assert len(lines) == 3
        submitted, listed = run_pasted(installation, lines).split("}{", 1)
        assert json.loads(submitted + "}")["created"] == 2
        addresses = [record["address"] for record in json.loads("{" + listed)["items"]]
        assert addresses[-2:] == ["ann@example.com", "bob@example.com"]
        assert len(addresses) > 2, "a demo has something to show"


class RestartedDemo(NamedTuple):
    """A demo that runs for the second time."""

    installation: Installation
    first: str
    """Return the text that the first start printed."""
    later: str


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartedDemo]:
    installation = Installation(tmp_path_factory.mktemp("restarted"))
    with installation.serving("--demo") as server:
        first = printed_text(server)
        assert server.terminate() == 0
    with installation.serving("--demo") as server:
        yield RestartedDemo(installation, first, printed_text(server))


@needs_curl
def test_a_later_start_lists_what_exists(restarted: RestartedDemo) -> None:
    """The secret is not shown again; the command for another key works, and so does that key."""
    secret = re.search(r"svc_cs_\w{49}", restarted.first)
    client_id = re.search(r"svc_ci_\w{22}", restarted.first)
    assert secret
    assert client_id
    assert secret[0] not in restarted.later
    assert client_id[0] in restarted.later
    assert "demo" in restarted.later
    another, get_token = commands(restarted.later)
    assert "key create" in another
    made = json.loads(run_pasted(restarted.installation, [f"{another} --json 2>&-"]))
    for key in (f"{client_id[0]}:{secret[0]}", f"{made['client_id']}:{made['client_secret']}"):
        line = get_token.replace("CLIENT_ID:CLIENT_SECRET", key)
        assert json.loads(run_pasted(restarted.installation, [line]))["expires_in"] == 900


def test_a_demo_has_an_empty_and_a_filled_organization(restarted: RestartedDemo) -> None:
    """`demo` with a default group and one key; the other with two months of opt-outs. A restart creates no more."""
    installation = restarted.installation
    demo, lantern = installation.json("org", "list")
    (group,) = installation.json("group", "list", "--org", "demo")
    (key,) = [key for key in installation.json("key", "list") if key["label"] == "Demo"]
    assert (demo["slug"], demo["default_group_id"]) == ("demo", group["group_id"])
    assert key["organizations"] == ["demo"]
    assert lantern["slug"] == "lantern-books"
    assert len(installation.json("group", "list", "--org", "lantern-books")) == 3


def test_an_administrator_signs_in_by_the_printed_link(installation: Installation) -> None:
    """A new link at each start until one is used; afterwards the address of the sign-in page, and no link."""
    links = []
    for _ in range(2):
        with installation.serving("--demo") as server:
            links.append(sign_in_link(server))
            assert server.terminate() == 0
    assert links[0].partition("?")[2] != links[1].partition("?")[2]
    with installation.serving("--demo") as server, server.client() as browser:
        link = sign_in_link(server)
        assert browser.get(f"{server.base_url}/settings/sign-in/link?{links[1].partition('?')[2]}").status_code == 404
        chosen = {
            "token": link.partition("token=")[2],
            "password": "long enough a word",
            "repeated": "long enough a word",
        }
        entered = browser.post(link.partition("?")[0], data=chosen, headers={"Origin": server.base_url})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        overview = browser.get("/")
        assert "Opt-outs per day" in overview.text
        assert "admin<wbr>@demo.example" in overview.text
        assert server.terminate() == 0
    with installation.serving("--demo") as server:
        text = printed_text(server)
        assert f"{server.base_url}/settings/sign-in\n" in text
        assert "token=" not in text


def test_a_demo_changes_nothing_in_a_database_in_use(installation: Installation) -> None:
    """It shows what exists."""
    installation.migrate()
    key = installation.new_key()
    with installation.serving("--demo") as server:
        text = printed_text(server)
        assert key.client_id in text
        assert "user create" in text, "nobody can sign in yet"
        assert "token=" not in text
    assert [org["slug"] for org in installation.json("org", "list")] == ["acme"]
    assert installation.json("user", "list") == []


def test_a_demo_in_production_is_refused(installation: Installation) -> None:
    """Nothing is created."""
    variables = {"BASE_URL": "https://optout.example", "TRUSTED_PROXIES": "10.0.0.0/8"}
    assert "--demo" in installation.refused("serve", "--demo", ENVIRONMENT="production", **variables)
    assert not installation.data_dir.exists()
