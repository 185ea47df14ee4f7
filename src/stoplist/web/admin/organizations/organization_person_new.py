"""Give somebody a role in an organization, by e-mail address. Source: docs/interface.md section D11."""

from stoplist.organizations.organizations import show_organization
from stoplist.staff.people import add_to_organization
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post
from stoplist.web.admin.roles import ROLE_TEXTS, read_role
from stoplist.web.admin.sign_in_links import link_page, person_path

_PATH = "/organizations/{slug}/people/new"


async def form(visit: Visit) -> Page:
    """An e-mail address and a role."""
    organization = await show_organization(visit.actor, visit.database, visit.path["slug"])
    visit.actor.must_administer(organization.slug)
    return Page("organizations/organization_person_new.html", {"organization": organization, "roles": ROLE_TEXTS})


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


WAYS = (get(_PATH, form), post(_PATH, add, again=form))
