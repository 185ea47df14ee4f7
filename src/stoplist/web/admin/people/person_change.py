"""What an administrator can do with a person, each said beforehand. Source: docs/interface.md section D11."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from stoplist.staff import people
from stoplist.staff.model import Person
from stoplist.web.admin.page_request import Handler, HtmlPage, PageRequest, PageRoute, Redirect, get, post
from stoplist.web.admin.sign_in_links import person_path


class _Action(NamedTuple):
    """How a page names an action and what it will do; `done` is the note that follows."""

    name: str
    title: str
    consequences: tuple[str, ...]
    button: str
    done: str
    operation: Callable[..., Awaitable[Person]]
    is_grave: bool = True


_ACTIONS = (
    _Action(
        "administrator",
        "Make administrator",
        (
            "This person may do everything from the next page on: in every organization, with every key and person.",
            "That includes closing organizations, and taking this right away from others, yours too.",
        ),
        "Make administrator",
        "administrator-made",
        partial(people.set_administrator, is_administrator=True),
    ),
    _Action(
        "no-administrator",
        "Take administrator away",
        (
            "From the next page on this person sees only the organizations in which there is a role left.",
            "The account, its roles and its sessions stay.",
        ),
        "Take it away",
        "administrator-unmade",
        partial(people.set_administrator, is_administrator=False),
    ),
    _Action(
        "disable",
        "Disable this person",
        (
            "All sessions end at once, and sign-in links are dead: no password opens the account any more.",
            "Roles stay, for the day on which the account is enabled again.",
            "What this person did stays in the audit. Keys that this person made go on working.",
        ),
        "Disable",
        "person-disabled",
        people.disable_person,
    ),
    _Action(
        "enable",
        "Enable this person",
        (
            "This person can sign in again, with the password and the roles of before.",
            "Sign-in links from before stay dead; you can make a new one.",
        ),
        "Enable",
        "person-enabled",
        people.enable_person,
        is_grave=False,
    ),
)


def _page(action: _Action) -> Handler:
    async def show(request: PageRequest) -> HtmlPage:
        request.actor.must_be_administrator()
        person = await people.show_person(request.actor, request.database, email=request.path["email"])
        return HtmlPage(
            "people/person_change.html", {"person": person, "here": person_path(person.email), "action": action}
        )

    return show


def _doing(action: _Action) -> Handler:
    async def change(request: PageRequest) -> Redirect:
        email = request.path["email"]
        person = await action.operation(request.actor, request.database, request.clock, email=email)
        return Redirect(person_path(person.email), note=action.done)

    return change


def _routes(action: _Action) -> tuple[PageRoute, PageRoute]:
    path, page = f"/settings/people/{{email:path}}/{action.name}", _page(action)
    return get(path, page), post(path, _doing(action), again=page)


ROUTES = tuple(way for action in _ACTIONS for way in _routes(action))
