"""The list of API keys and the links of a key. docs/interface.md sections 2.1 and D11."""

from stoplist.oauth.credentials import create_credential
from tests.web.admin.opt_outs import new_organization
from tests.web.admin.pages import PageResponse, Pages


def keys_of(shown: PageResponse) -> set[str]:
    """Return the client_ids that the page links to."""
    return {link.rpartition("/")[2] for link in shown.links if link.startswith("/settings/keys/svc_ci_")}


def test_keys_are_filtered_by_organization(pages: Pages) -> None:
    """The organization's page links to the filtered list."""
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
    """Also one that does not exist or that the person may not see, in the same words."""
    texts = {pages.signed_in("both").get(f"/settings/keys?organization={slug}").text for slug in ("globex", "no-such")}
    assert len(texts) == 1
    assert "No API keys for this organization" in texts.pop()


def test_one_organization_needs_no_filter(pages: Pages) -> None:
    pages.administer(create_credential, label="Of Acme", organizations=["acme"])
    shown = pages.signed_in("viewer").get("/settings/keys")
    assert keys_of(shown)
    assert shown.forms == [form for form in shown.forms if form.action == "/settings/sign-out"]


def test_a_replacement_links_to_the_old_key(pages: Pages) -> None:
    """The page of the new secret says to deactivate the old key."""
    key = pages.administer(create_credential, label="To be replaced", organizations=["acme"]).credential
    browser = pages.signed_in("admin")
    path = f"/settings/keys/{key.client_id}/replace"
    made = browser.send(browser.get(path).form(path))
    assert "keeps working" in made.text
    assert f"/settings/keys/{key.client_id}" in made.links


def test_a_key_links_to_its_audit_for_admins(pages: Pages) -> None:
    """Viewers are told who may change the key."""
    key = pages.administer(create_credential, label="Audited", organizations=["acme"]).credential
    path, audit = f"/settings/keys/{key.client_id}", f"/audit?target={key.client_id}"
    admin, viewer = pages.signed_in("admin"), pages.signed_in("viewer").get(path)
    assert audit in admin.get(path).links
    assert "Key created" in admin.get(audit).text
    assert audit not in viewer.links
    assert "You can only view this key" in viewer.text
