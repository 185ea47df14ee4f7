"""Pages of a deployment with more organizations than a page lists. docs/interface.md section D11."""

import re
from collections.abc import Iterator

import pytest

from stoplist.oauth.credentials import create_credential
from stoplist.organizations.organizations import create_organization
from tests.builders import in_a_loop, migrated
from tests.fakes import FakeClock
from tests.web.admin.opt_outs import PagesPartner
from tests.web.admin.pages import Pages
from tests.web.application import Application

LISTS = {"/organizations": "/organizations/chain-57", "/unsubscribes": "/unsubscribes/chain-57/email"}


@pytest.fixture(scope="module")
def many(module_sqlite_url: str) -> Iterator[Pages]:
    """Sixty organizations beside the usual ones."""
    with in_a_loop(migrated(module_sqlite_url)) as (run, database):
        pages = Pages(Application(run, database, FakeClock()))
        pages.prepare()
        for number in range(60):
            pages.administer(create_organization, slug=f"chain-{number}", name=f"Chain Store {number}")
        PagesPartner(pages).submit("one@many.example")
        pages.administer(create_credential, label="Of 57", organizations=["chain-57"])
        yield pages


@pytest.mark.parametrize("path", LISTS)
def test_many_organizations_are_searched_by_name_or_slug(many: Pages, path: str) -> None:
    """The page stays short and states how many are not shown."""
    browser = many.signed_in("administrator")
    everything = browser.get(path)
    table = everything.html.partition("<tbody")[2].partition("</tbody>")[0]
    assert len(re.findall("<tr", table)) == 50
    assert "And 12 more. Enter a name or slug" in everything.text
    finding = everything.form(path) if path == "/organizations" else everything.forms[-1]
    for typed in ("STORE 57", "chain-57"):
        found = browser.send(finding, organization=typed)
        assert [link for link in found.links if "chain-" in link and link.endswith(("57", "/email"))] == [LISTS[path]]
    assert "No organization matches" in browser.send(finding, organization="nowhere").text


@pytest.mark.parametrize("path", LISTS)
def test_few_organizations_need_no_search(many: Pages, path: str) -> None:
    """The list of a person is as long as what they may see."""
    shown = many.signed_in("both").get(path)
    assert not [form for form in shown.forms if form.method == "get"]


def test_the_overview_of_many_organizations_suggests_them(many: Pages) -> None:
    """A field instead of a select with sixty options."""
    browser = many.signed_in("administrator")
    form = browser.get("/").form("/")
    assert ("organization", "") in form.values
    assert '<option value="chain-57">Chain Store 57</option>' in browser.get("/").html
    assert "Overview: Chain Store 57" in browser.send(form, organization="chain-57").text
    assert browser.send(form, organization="chain").status == 404


def test_the_keys_of_many_organizations_are_filtered(many: Pages) -> None:
    browser = many.signed_in("administrator")
    form = browser.get("/settings/keys").form("/settings/keys")
    assert "Of 57" in browser.send(form, organization="chain-57").text
    assert "No API keys for this organization" in browser.send(form, organization="chain-5").text


def test_a_form_with_many_boxes_can_be_searched(many: Pages) -> None:
    """A script does it; without it the field is hidden, and all boxes are there."""
    administrator, admin = many.signed_in("administrator"), many.signed_in("admin")
    assert 'data-finds="organizations" autocomplete="off" hidden>' in administrator.get("/settings/keys/new").html
    assert "data-finds" not in admin.get("/settings/keys/new").html
