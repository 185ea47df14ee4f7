"""Retire or revoke a link key. Each page states the consequences first. Source: docs/interface.md section D15."""

from stoplist.errors import Refused
from stoplist.links.keys import ACTS_DAYS, retire_link_key, revoke_link_key
from stoplist.web.admin.link_keys.link_key import link_key_of, recent_acts
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_RETIRE_PATH = "/organizations/{slug}/links/{link_key_id}/retire"
_REVOKE_PATH = "/organizations/{slug}/links/{link_key_id}/revoke"
WORD = "revoke"


async def retire_form(request: PageRequest) -> HtmlPage:
    """Show what retiring means."""
    return await _form(request, "retire")


async def retire(request: PageRequest) -> Redirect:
    """Retire the key."""
    organization, key = await link_key_of(request)
    await retire_link_key(request.actor, request.database, request.clock, link_key_id=key.link_key_id)
    return Redirect(f"/organizations/{organization.slug}/links/{key.link_key_id}", note="link-key-retired")


async def revoke_form(request: PageRequest) -> HtmlPage:
    """Show what revoking means, and how many acts by the key there were."""
    return await _form(request, "revoke")


async def revoke(request: PageRequest) -> Redirect:
    """Revoke the key, if the word was typed."""
    organization, key = await link_key_of(request)
    request.actor.require_admin_of(organization.slug)
    if request.form.text("word").lower() != WORD:
        raise Refused(f"Type the word {WORD}.", field="word")
    await revoke_link_key(request.actor, request.database, request.clock, link_key_id=key.link_key_id)
    return Redirect(f"/organizations/{organization.slug}/links/{key.link_key_id}", note="link-key-revoked")


async def _form(request: PageRequest, action: str) -> HtmlPage:
    organization, key = await link_key_of(request)
    request.actor.require_admin_of(organization.slug)
    acts = await recent_acts(request, key)
    values = {"organization": organization, "key": key, "action": action, "acts": acts, "days": ACTS_DAYS, "word": WORD}
    return HtmlPage("link_keys/link_key_change.html", values)


ROUTES = (
    get(_RETIRE_PATH, retire_form),
    post(_RETIRE_PATH, retire, on_refusal=retire_form),
    get(_REVOKE_PATH, revoke_form),
    post(_REVOKE_PATH, revoke, on_refusal=revoke_form),
)
