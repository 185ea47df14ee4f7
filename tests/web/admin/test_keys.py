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
    """The words are the same for one that does not exist or that the person may not see."""
    texts = {pages.signed_in("both").get(f"/settings/keys?organization={slug}").text for slug in ("globex", "no-such")}
    assert len(texts) == 1
    assert "No API keys for this organization" in texts.pop()


def test_one_organization_needs_no_filter(pages: Pages) -> None:
    pages.administer(create_credential, label="Of Acme", organizations=["acme"])
    shown = pages.signed_in("viewer").get("/settings/keys")
    assert keys_of(shown)
    assert shown.forms == [form for form in shown.forms if form.action == "/settings/sign-out"]


def test_a_key_can_need_its_secret_for_a_refresh(pages: Pages) -> None:
    """The forms of a new key and of its settings; off unless it is chosen."""
    browser = pages.signed_in("admin")
    made = browser.submit_form("/settings/keys/new", label="Careful", organizations="acme", refresh="needs_secret")
    (path,) = {link for link in made.links if link.startswith("/settings/keys/svc_ci_") and not link.endswith("sheet")}
    assert "Needs the secret" in browser.get(path).text
    assert "together with the secret" in browser.get(f"{path}/sheet").text
    edit = browser.get(f"{path}/edit").form(f"{path}/edit")
    assert ("refresh", "needs_secret") in edit.values
    browser.send(edit, refresh=[])
    assert "By refresh token alone" in browser.get(path).text


def test_a_replacement_links_to_the_old_key(pages: Pages) -> None:
    """The page of the new secret says to deactivate the old key."""
    key = pages.administer(create_credential, label="To be replaced", organizations=["acme"]).credential
    browser = pages.signed_in("admin")
    path = f"/settings/keys/{key.client_id}/replace"
    made = browser.submit_form(path)
    assert "keeps working" in made.text
    assert f"/settings/keys/{key.client_id}" in made.links


def test_a_replacement_can_end_the_old_key(pages: Pages) -> None:
    """An organization's admin is told where raised rate limits go."""
    key = pages.administer(create_credential, label="Raised", organizations=["acme"], api_per_minute=600).credential
    browser, path = pages.signed_in("admin"), f"/settings/keys/{key.client_id}"
    shown = browser.get(f"{path}/replace")
    assert "They move to the new key only if you deactivate this key at once." in shown.text
    assert "is deactivated" in browser.send(shown.form(f"{path}/replace"), deactivates_old="yes").text
    assert "Inactive" in browser.get(path).text
    assert "60 API requests" in browser.get(path).text


def test_a_key_links_to_its_audit_for_admins(pages: Pages) -> None:
    """Viewers are told who may change the key."""
    key = pages.administer(create_credential, label="Audited", organizations=["acme"]).credential
    path, audit = f"/settings/keys/{key.client_id}", f"/audit?target={key.client_id}"
    admin, viewer = pages.signed_in("admin"), pages.signed_in("viewer").get(path)
    assert audit in admin.get(path).links
    assert "Key created" in admin.get(audit).text
    assert audit not in viewer.links
    assert "You can only view this key" in viewer.text
    assert "send that separately" in admin.get(f"{path}/sheet").text
    assert "which an admin sends separately" in pages.signed_in("viewer").get(f"{path}/sheet").text
