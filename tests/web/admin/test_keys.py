"""API Keys: which are listed, and the way from a key to what belongs to it. docs/interface.md sections 2.1 and D11."""

from stoplist.oauth.credentials import create_credential
from tests.web.admin.opt_outs import new_organization
from tests.web.admin.pages import Pages, Shown


def keys_of(shown: Shown) -> set[str]:
    """The client_ids that the page links to."""
    return {link.rpartition("/")[2] for link in shown.links if link.startswith("/settings/keys/svc_ci_")}


def test_the_keys_of_one_organization_are_listed_alone(pages: Pages) -> None:
    """An organization's page leads there; the choice stays, and goes back to all."""
    one, other = new_organization(pages, "keyed-one"), new_organization(pages, "keyed-other")
    slugs = ["keyed-one", "keyed-other"]
    both = pages.administer(create_credential, label="Both", organizations=slugs, default_organization=slugs[0])
    browser = pages.signed_in("administrator")
    (to_keys,) = [link for link in browser.get("/organizations/keyed-one").links if "keys?" in link]
    shown = browser.get(to_keys)
    assert keys_of(shown) == {one.key.client_id, both.credential.client_id}
    form = shown.form("/settings/keys")
    assert ("organization", "keyed-one") in form.values
    assert keys_of(browser.send(form, organization="")) >= {one.key.client_id, other.key.client_id}


def test_an_organization_without_keys_says_so(pages: Pages) -> None:
    """And so does one that is not there, or that is not this person's to see: in the same words."""
    said = {pages.signed_in("both").get(f"/settings/keys?organization={slug}").text for slug in ("globex", "no-such")}
    assert len(said) == 1
    assert "No API key for this organization" in said.pop()


def test_somebody_with_one_organization_has_nothing_to_choose(pages: Pages) -> None:
    """The list is that of the organization."""
    pages.administer(create_credential, label="Of Acme", organizations=["acme"])
    shown = pages.signed_in("viewer").get("/settings/keys")
    assert keys_of(shown)
    assert shown.forms == [form for form in shown.forms if form.action == "/settings/sign-out"]


def test_a_replaced_key_leads_back_to_the_old_one(pages: Pages) -> None:
    """The page of the new secret says what is left to do: deactivate the old key."""
    key = pages.administer(create_credential, label="To be replaced", organizations=["acme"]).credential
    browser = pages.signed_in("admin")
    path = f"/settings/keys/{key.client_id}/replace"
    made = browser.send(browser.get(path).form(path))
    assert "goes on working" in made.text
    assert f"/settings/keys/{key.client_id}" in made.links


def test_a_key_leads_to_its_audit_for_those_who_may_read_it(pages: Pages) -> None:
    """And tells the others who may change it."""
    key = pages.administer(create_credential, label="Audited", organizations=["acme"]).credential
    path, audit = f"/settings/keys/{key.client_id}", f"/audit?target={key.client_id}"
    admin, viewer = pages.signed_in("admin"), pages.signed_in("viewer").get(path)
    assert audit in admin.get(path).links
    assert "Key created" in admin.get(audit).text
    assert audit not in viewer.links
    assert "You may look at this key" in viewer.text
