"""What can be done with a key, each said beforehand: replace, rotate, revoke, deactivate, activate.

Source: docs/interface.md sections 2.1, D2 (Revoke all) and D11.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from stoplist import ids
from stoplist.errors import AlreadyMade, Forbidden
from stoplist.oauth import credentials
from stoplist.oauth.model import Credential
from stoplist.oauth.store import may_change
from stoplist.web.admin.form_names import opened, sealed
from stoplist.web.admin.page_request import Handler, HtmlPage, PageRequest, PageRoute, Redirect, get, post


class _Action(NamedTuple):
    """How a page names an action, what it will do, and whether it stops something."""

    name: str
    title: str
    consequences: tuple[str, ...]
    button: str
    stops: bool = True


_ACTIONS = (
    _Action(
        "replace",
        "Replace this key",
        (
            "A second key with the same rights is made beside this one, with a client_id and a secret of its own.",
            "Nothing stops working: this key goes on until you deactivate it.",
            "Send the new key to your partner. Once Last used of this one stands still, deactivate it.",
        ),
        "Make the new key",
        stops=False,
    ),
    _Action(
        "rotate",
        "Rotate the secret",
        (
            "The old secret stops working at once, and so does every access token and refresh token of this key.",
            "The partner's programs are refused until they have the new secret. "
            "To change over without a gap, replace the key.",
        ),
        "Rotate the secret",
    ),
    _Action(
        "revoke",
        "Revoke all tokens",
        (
            "Every access token and refresh token of this key stops working at once.",
            "Its secret stays good: the partner's programs get new tokens with it, most of them by themselves.",
        ),
        "Revoke all tokens",
    ),
    _Action(
        "deactivate",
        "Deactivate this key",
        (
            "It gets no token any more, and every token that it has stops working at once.",
            "The partner's programs can neither submit opt-outs nor read them until it is activated again.",
        ),
        "Deactivate",
    ),
    _Action(
        "activate",
        "Activate this key",
        (
            "It gets tokens again with its secret.",
            "Tokens that were revoked stay so.",
        ),
        "Activate",
        stops=False,
    ),
)


def _page(action: _Action) -> Handler:
    async def show(request: PageRequest) -> HtmlPage:
        key = await credentials.show_credential(request.actor, request.database, client_id=request.path["client_id"])
        if not may_change(request.actor, key):
            raise Forbidden("Only an admin of every organization that this key covers, or an administrator, does this.")
        new_id = sealed(request, "new_client_id", ids.new_id(ids.CLIENT_ID))
        return HtmlPage("keys/key_change.html", {"key": key, "action": action, "new_client_id": new_id})

    return show


async def _replace(request: PageRequest) -> HtmlPage | Redirect:
    new_client_id = opened(request, "new_client_id")
    try:
        made = await credentials.replace_credential(
            request.actor,
            request.database,
            request.clock,
            client_id=request.path["client_id"],
            new_client_id=new_client_id,
        )
    except AlreadyMade:
        return Redirect(f"/settings/keys/{new_client_id}", note="key-made-already")
    values = {"key": made.credential, "secret": made.client_secret, "done": "created"}
    return HtmlPage("keys/key_secret.html", values | {"old_client_id": request.path["client_id"]})


async def _rotate(request: PageRequest) -> HtmlPage | Redirect:
    client_id = request.path["client_id"]
    try:
        made = await credentials.rotate_secret(
            request.actor,
            request.database,
            request.clock,
            client_id=client_id,
            expected_prefix=request.form.text("secret_prefix"),
        )
    except AlreadyMade:
        return Redirect(f"/settings/keys/{client_id}", note="key-made-already")
    values = {"key": made.credential, "secret": made.client_secret, "done": "given a new secret"}
    return HtmlPage("keys/key_secret.html", values | {"old_client_id": None})


def _switch(operation: Callable[..., Awaitable[Credential]], note: str) -> Handler:
    async def switch(request: PageRequest) -> Redirect:
        client_id = request.path["client_id"]
        await operation(request.actor, request.database, request.clock, client_id=client_id)
        return Redirect(f"/settings/keys/{client_id}", note=note)

    return switch


_DOING: dict[str, Handler] = {
    "replace": _replace,
    "rotate": _rotate,
    "revoke": _switch(credentials.revoke_tokens, "key-revoked"),
    "deactivate": _switch(credentials.deactivate_credential, "key-deactivated"),
    "activate": _switch(credentials.activate_credential, "key-activated"),
}


def _routes(action: _Action) -> tuple[PageRoute, PageRoute]:
    path, page = f"/settings/keys/{{client_id}}/{action.name}", _page(action)
    return get(path, page), post(path, _DOING[action.name], again=page)


ROUTES = tuple(way for action in _ACTIONS for way in _routes(action))
