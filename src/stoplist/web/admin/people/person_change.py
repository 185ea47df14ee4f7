"""Actions of an administrator on a person. Each page states the consequences first.

Source: docs/interface.md section D11.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from stoplist.staff import people, roles
from stoplist.staff.model import Person
from stoplist.web.admin.page_request import Handler, HtmlPage, PageRequest, PageRoute, Redirect, get, post
from stoplist.web.admin.sign_in_links import person_path


class _PersonAction(NamedTuple):
    """The words of an action's page, its operation, and `note`, the message shown afterwards."""

    name: str
    title: str
    consequences: tuple[str, ...]
    button: str
    note: str
    operation: Callable[..., Awaitable[Person]]
    is_destructive: bool = True


_ACTIONS = (
    _PersonAction(
        "administrator",
        "Make administrator",
        (
            "From the next page they open, this person has full access to all organizations, keys and people.",
            "This includes closing organizations and removing other administrators, including you.",
        ),
        "Make administrator",
        "administrator-made",
        partial(roles.set_administrator, is_administrator=True),
    ),
    _PersonAction(
        "no-administrator",
        "Remove administrator",
        (
            "From the next page they open, this person only sees organizations in which they have a role.",
            "The account, its roles and its sessions are kept.",
        ),
        "Remove administrator",
        "administrator-unmade",
        partial(roles.set_administrator, is_administrator=False),
    ),
    _PersonAction(
        "disable",
        "Disable this account",
        (
            "All sessions end immediately, sign-in links stop working, and nobody can sign in to the account.",
            "Roles are kept in case the account is enabled again.",
            "This person's entries stay in the audit log. Keys they created keep working.",
        ),
        "Disable",
        "person-disabled",
        people.disable_person,
    ),
    _PersonAction(
        "enable",
        "Enable this account",
        (
            "This person can sign in again with the same password and roles as before.",
            "Old sign-in links stay invalid; you can create a new one.",
        ),
        "Enable",
        "person-enabled",
        people.enable_person,
        is_destructive=False,
    ),
)


def _page(action: _PersonAction) -> Handler:
    async def show(request: PageRequest) -> HtmlPage:
        request.actor.require_administrator()
        person = await people.show_person(request.actor, request.database, email=request.path["email"])
        return HtmlPage(
            "people/person_change.html", {"person": person, "here": person_path(person.email), "action": action}
        )

    return show


def _handler(action: _PersonAction) -> Handler:
    async def change(request: PageRequest) -> Redirect:
        email = request.path["email"]
        person = await action.operation(request.actor, request.database, request.clock, email=email)
        return Redirect(person_path(person.email), note=action.note)

    return change


def _routes(action: _PersonAction) -> tuple[PageRoute, PageRoute]:
    path, page = f"/settings/people/{{email:path}}/{action.name}", _page(action)
    return get(path, page), post(path, _handler(action), on_refusal=page)


ROUTES = tuple(route for action in _ACTIONS for route in _routes(action))
