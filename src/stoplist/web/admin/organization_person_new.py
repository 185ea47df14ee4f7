"""Give somebody a role in an organization, by e-mail address. Source: docs/interface.md section D11."""

from stoplist.actor import ADMIN, VIEWER, Role
from stoplist.errors import Refused
from stoplist.organizations.organizations import show_organization
from stoplist.staff.people import add_to_organization
from stoplist.web.admin.person_link import link_page, person_path
from stoplist.web.admin.visit import Page, Redirect, Visit, get, post

_PATH = "/organizations/{slug}/people/new"
ROLE_TEXTS = (
    (VIEWER, "Viewer: sees opt-outs, groups and keys"),
    (ADMIN, "Admin: also changes them, and says who has a role"),
)
_ROLES: dict[str, Role] = {VIEWER: VIEWER, ADMIN: ADMIN}


async def form(visit: Visit) -> Page:
    """An e-mail address and a role."""
    organization = await show_organization(visit.actor, visit.database, visit.path["slug"])
    visit.actor.must_administer(organization.slug)
    return Page("organization_person_new.html", {"organization": organization, "roles": ROLE_TEXTS})


async def add(visit: Visit) -> Page | Redirect:
    """The person has the role. Somebody who was not known gets an account, whose sign-in link is shown this once."""
    slug = visit.path["slug"]
    person, link = await add_to_organization(
        visit.actor, visit.database, visit.clock, email=visit.form.text("email"), org_slug=slug, role=read_role(visit)
    )
    back = person_path(person.email, slug)
    if link is None:
        return Redirect(back, note="role-set-known")
    return link_page(visit, link, back=back)


def read_role(visit: Visit) -> Role:
    """The role in the form; Refused where it is none."""
    role = _ROLES.get(visit.form.text("role"))
    if role is None:
        raise Refused(f"A role is one of {', '.join(_ROLES)}.", field="role")
    return role


WAYS = (get(_PATH, form), post(_PATH, add, again=form))
