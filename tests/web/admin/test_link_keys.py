"""The pages of link keys and of the opt-out page (docs/interface.md section D15)."""

import re

from stoplist_addresses.link_tokens import LinkContent, LinkKey

from tests.web.admin.creation import organization
from tests.web.admin.pages import Pages


def new_key(pages: Pages, slug: str) -> LinkKey:
    browser, path = pages.signed_in("administrator"), f"/organizations/{slug}/links/new"
    made = browser.submit_form(path)
    (link_key,) = re.findall(r"svc_lk_[0-9A-Za-z]{49}", made.text)
    return LinkKey(link_key)


def test_a_created_link_key_is_shown_once(pages: Pages) -> None:
    """Its links work at once. It has no page at another organization."""
    slug, other = organization(pages), organization(pages)
    key = new_key(pages, slug)
    browser = pages.signed_in("administrator")
    shown = browser.get(f"/organizations/{slug}/links/{key.key_id}")
    assert "Active" in shown.text
    assert "svc_lk_" not in shown.text
    assert key.key_id in browser.get(f"/organizations/{slug}/links").text
    token = key.token(LinkContent("email", None, "ann@example.com"))
    assert pages.app.request("POST", f"/u/{token}").status == 200
    assert "1 (list)" in browser.get(f"/organizations/{slug}/links/{key.key_id}").text
    assert browser.get(f"/organizations/{other}/links/{key.key_id}").status == 404


def test_acts_by_links_are_listed_with_their_key_alone(pages: Pages) -> None:
    """The page of the record says that the person acted by a link."""
    slug = organization(pages)
    key = new_key(pages, slug)
    for address in ("ann@example.com", "bob@example.com"):
        pages.app.request("POST", f"/u/{key.token(LinkContent('email', None, address))}")
    browser = pages.signed_in("administrator")
    assert key.key_id not in browser.get(f"/unsubscribes/submissions?organization={slug}").text
    assert browser.get(f"/unsubscribes/submissions?key={key.key_id}").text.count("the person, by a link") == 2
    record = browser.get(f"/unsubscribes/{slug}/email/1")
    assert f"the person, by a link ({key.key_id})" in record.text
    assert "one_click" in record.text


def test_revoking_needs_the_word(pages: Pages) -> None:
    slug = organization(pages)
    key = new_key(pages, slug)
    browser, path = pages.signed_in("administrator"), f"/organizations/{slug}/links/{key.key_id}/revoke"
    page = browser.get(path)
    assert "In the last 60 days, 0 acts" in page.text
    refused = browser.send(page.form(path), word="yes")
    assert (refused.status, "Type the word revoke" in refused.text) == (422, True)
    done = browser.follow(browser.send(page.form(path), word="revoke"))
    assert "Revoked" in done.text
    assert pages.app.request("GET", f"/u/{key.token(LinkContent('email', None, 'ann@example.com'))}").status == 410


def test_people_turned_away_are_shown(pages: Pages) -> None:
    """Each person once, on the page of the key and in the list, once the count is written."""
    slug = organization(pages)
    key = new_key(pages, slug)
    browser, here = pages.signed_in("administrator"), f"/organizations/{slug}/links"
    browser.submit_form(f"{here}/{key.key_id}/revoke", word="revoke")
    for address in ("ann@example.com", "bob@example.com", "ann@example.com"):
        pages.app.request("GET", f"/u/{key.token(LinkContent('email', None, address))}")
    pages.app.run(pages.app.parts.link_events.flush(pages.app.database))
    for path in (f"{here}/{key.key_id}", here):
        assert re.search(r'People turned away(</dt><dd>|" class="figure">)2<', browser.get(path).html)


def test_a_retired_key_is_no_longer_offered_to_be_retired(pages: Pages) -> None:
    slug = organization(pages)
    key = new_key(pages, slug)
    browser, path = pages.signed_in("administrator"), f"/organizations/{slug}/links/{key.key_id}/retire"
    shown = browser.follow(browser.submit_form(path))
    assert "keep working" in shown.text
    assert path not in shown.links
    assert "retired already" in browser.get(path).text


def test_what_admins_set_is_on_the_opt_out_page(pages: Pages) -> None:
    slug = organization(pages)
    key = new_key(pages, slug)
    browser, path = pages.signed_in("administrator"), f"/organizations/{slug}/links/page"
    refused = browser.submit_form(path, contact_line="privacy@a.example", accent_colour="red")
    assert (refused.status, "six hexadecimal digits" in refused.text) == (422, True)
    done = browser.submit_form(path, contact_line="privacy@<a>.example", accent_colour="#FFEE00")
    assert "privacy@<a>.example" in browser.follow(done).text
    answer = pages.app.request("GET", f"/u/{key.token(LinkContent('email', None, 'ann@example.com'))}")
    assert b"privacy@&lt;a&gt;.example" in answer.body
    assert b"--accent:#ffee00;--on-accent:#000000" in answer.body
