"""Create an API key; its secret is shown on the answer, this once. Source: docs/interface.md section 2.1."""

from stoplist import ids
from stoplist.errors import AlreadyMade, Refused
from stoplist.oauth.credentials import create_credential
from stoplist.oauth.model import MOST_PER_MINUTE
from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.once import opened, sealed
from stoplist.web.admin.visit import Page, Redirect, Visit, get, post

_PATH = "/settings/keys/new"
PERMISSION_TEXTS = (
    ("read", "Read", "look up and list opt-outs, and follow every change"),
    ("unsubscribe", "Unsubscribe", "submit opt-outs"),
    ("resubscribe", "Resubscribe", "submit that people want messages again"),
)


async def form(visit: Visit) -> Page:
    """What a key needs; the client_id that it will have is drawn now, so that a form sent twice makes one key."""
    organizations = [
        one
        for one in await list_organizations(visit.actor, visit.database)
        if not one.is_closed and visit.actor.administers([one.slug])
    ]
    return Page(
        "key_new.html",
        {
            "organizations": organizations,
            "permissions": PERMISSION_TEXTS,
            "client_id": sealed(visit, "client_id", ids.new_id(ids.CLIENT_ID)),
        },
    )


async def create(visit: Visit) -> Page | Redirect:
    """The key exists."""
    client_id = opened(visit, "client_id")
    try:
        created = await create_credential(
            visit.actor,
            visit.database,
            visit.clock,
            label=visit.form.text("label"),
            organizations=visit.form.all("organizations"),
            default_organization=visit.form.text("default_organization") or None,
            permissions=frozenset(visit.form.all("permissions")),
            client_id=client_id,
            token_per_minute=read_ceiling(visit, "token_per_minute"),
            api_per_minute=read_ceiling(visit, "api_per_minute"),
        )
    except AlreadyMade:
        return Redirect(f"/settings/keys/{client_id}", note="key-made-already")
    values = {"key": created.credential, "secret": created.client_secret, "done": "created", "old_client_id": None}
    return Page("key_secret.html", values)


def read_ceiling(visit: Visit, field: str) -> int | None:
    """The number in that field; None where it is empty. Raises Refused."""
    text = visit.form.text(field)
    if not text:
        return None
    digits = text.replace(",", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and 1 <= int(digits) <= MOST_PER_MINUTE):
        raise Refused(f"A ceiling is a whole number of requests from 1 to {MOST_PER_MINUTE:,}.", field=field)
    return int(digits)


WAYS = (get(_PATH, form), post(_PATH, create, again=form))
