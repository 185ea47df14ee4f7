"""Actions on a key: replace, rotate, revoke, deactivate, activate. Each page states the consequences first.

Source: docs/interface.md sections 2.1, D2 (Revoke all) and D11.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from stoplist import ids
from stoplist.errors import AlreadyMade, Forbidden
from stoplist.oauth import credentials, replacement
from stoplist.oauth.key_rules import has_raised_ceilings
from stoplist.oauth.model import Credential
from stoplist.oauth.store import may_change
from stoplist.web.admin.form_names import read_signed_field, sign_field
from stoplist.web.admin.page_request import Handler, HtmlPage, PageRequest, PageRoute, Redirect, get, post


class _KeyAction(NamedTuple):
    """The words of an action's page. `is_destructive`: the action stops something, so its button is red."""

    name: str
    title: str
    consequences: tuple[str, ...]
    button: str
    is_destructive: bool = True


_ACTIONS = (
    _KeyAction(
        "replace",
        "Replace this key",
        (
            "Creates a second key with the same permissions, and its own client_id and secret.",
            "Nothing stops working, unless you choose to deactivate this key at once.",
            "Send the new key to your partner. When Last used of this key no longer changes, deactivate it.",
        ),
        "Create the new key",
        is_destructive=False,
    ),
    _KeyAction(
        "rotate",
        "Rotate secret",
        (
            "The current secret and all access and refresh tokens of this key stop working immediately.",
            "The partner's programs are refused until they use the new secret. "
            "To switch without downtime, replace the key instead.",
        ),
        "Rotate secret",
    ),
    _KeyAction(
        "revoke",
        "Revoke all tokens",
        (
            "All access and refresh tokens of this key stop working immediately.",
            "The secret stays valid. Most programs get new tokens with it automatically.",
        ),
        "Revoke all tokens",
    ),
    _KeyAction(
        "deactivate",
        "Deactivate this key",
        (
            "All its tokens stop working immediately, and it cannot get new ones.",
            "The partner's programs can neither submit nor read opt-outs until the key is activated again.",
        ),
        "Deactivate",
    ),
    _KeyAction(
        "activate",
        "Activate this key",
        (
            "The key can get tokens again with its secret.",
            "Revoked tokens stay revoked.",
        ),
        "Activate",
        is_destructive=False,
    ),
)


def _page(action: _KeyAction) -> Handler:
    async def show(request: PageRequest) -> HtmlPage:
        key = await credentials.show_credential(request.actor, request.database, client_id=request.path["client_id"])
        if not may_change(request.actor, key):
            raise Forbidden(
                "Only an administrator, or an admin of every organization that this key covers, can do this."
            )
        new_id = sign_field(request, "new_client_id", ids.new_id(ids.CLIENT_ID))
        values = {"key": key, "action": action, "new_client_id": new_id, "ceilings_hint": _ceilings_hint(request, key)}
        return HtmlPage("keys/key_change.html", values)

    return show


def _ceilings_hint(request: PageRequest, key: Credential) -> str:
    if not has_raised_ceilings(key):
        return ""
    if request.actor.is_administrator:
        return "Both keys have the same rate limits. If you deactivate this key at once, its raised limits move."
    return (
        "This key has raised rate limits. They move to the new key only if you deactivate this key at once. "
        "Otherwise the new key gets ordinary limits, which an administrator can raise."
    )


async def _replace(request: PageRequest) -> HtmlPage | Redirect:
    new_client_id = read_signed_field(request, "new_client_id")
    deactivates_old = bool(request.form.all("deactivates_old"))
    try:
        issued = await replacement.replace_credential(
            request.actor,
            request.database,
            request.clock,
            client_id=request.path["client_id"],
            new_client_id=new_client_id,
            deactivates_old=deactivates_old,
        )
    except AlreadyMade:
        return Redirect(f"/settings/keys/{new_client_id}", note="key-made-already")
    values = {"key": issued.credential, "secret": issued.client_secret, "heading": "Key created"}
    return HtmlPage(
        "keys/key_secret.html",
        values | {"old_client_id": request.path["client_id"], "is_old_deactivated": deactivates_old},
    )


async def _rotate(request: PageRequest) -> HtmlPage | Redirect:
    client_id = request.path["client_id"]
    try:
        issued = await credentials.rotate_secret(
            request.actor,
            request.database,
            request.clock,
            client_id=client_id,
            expected_prefix=request.form.text("secret_prefix"),
        )
    except AlreadyMade:
        return Redirect(f"/settings/keys/{client_id}", note="key-made-already")
    values = {"key": issued.credential, "secret": issued.client_secret, "heading": "Secret rotated"}
    return HtmlPage("keys/key_secret.html", values | {"old_client_id": None})


def _switch(operation: Callable[..., Awaitable[Credential]], note: str) -> Handler:
    async def switch(request: PageRequest) -> Redirect:
        client_id = request.path["client_id"]
        await operation(request.actor, request.database, request.clock, client_id=client_id)
        return Redirect(f"/settings/keys/{client_id}", note=note)

    return switch


_HANDLERS: dict[str, Handler] = {
    "replace": _replace,
    "rotate": _rotate,
    "revoke": _switch(credentials.revoke_tokens, "key-revoked"),
    "deactivate": _switch(credentials.deactivate_credential, "key-deactivated"),
    "activate": _switch(credentials.activate_credential, "key-activated"),
}


def _routes(action: _KeyAction) -> tuple[PageRoute, PageRoute]:
    path, page = f"/settings/keys/{{client_id}}/{action.name}", _page(action)
    return get(path, page), post(path, _HANDLERS[action.name], on_refusal=page)


ROUTES = tuple(route for action in _ACTIONS for route in _routes(action))
