"""The rights that a person has now, for work that goes on after their request.

Source: docs/interface.md sections D11 and D12.
"""

from stoplist.actor import ADMINISTER, Actor
from stoplist.db import Database
from stoplist.errors import Missing
from stoplist.staff.store import find_person


async def current_person(database: Database, email: str) -> Actor:
    """Return the person as an actor with their rights at this moment; none if the account is disabled or unknown."""
    try:
        person = await find_person(database, email)
    except Missing:
        return Actor(kind="person", id=email)
    if person.is_disabled:
        return Actor(kind="person", id=email)
    may = frozenset((ADMINISTER,)) if person.is_administrator else frozenset[str]()
    return Actor(kind="person", id=person.email, may=may, roles=person.roles)
