"""Keys that are revoked while the body of a submission arrives (docs/interface.md sections 2.1 and D3)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stoplist.oauth.credentials import (
    Changes,
    activate_credential,
    deactivate_credential,
    revoke_tokens,
    rotate_secret,
    update_credential,
)
from stoplist.web.api import unsubscribe
from stoplist.web.body import read_body
from tests.builders import ADMINISTRATOR
from tests.unsubscribes.partner import out
from tests.web.api.partner import NOTHING, ApiPartner

Act = Callable[[ApiPartner, str], Awaitable[object]]


def by(operation: Callable[..., Awaitable[object]], **values: Any) -> Act:
    """Return an operation of an administrator on the key of the partner."""

    def act(partner: ApiPartner, client_id: str) -> Awaitable[object]:
        return operation(ADMINISTRATOR, partner.app.database, partner.clock, client_id=client_id, **values)

    return act


async def off_and_on(partner: ApiPartner, client_id: str) -> None:
    """Deactivate and activate the key; its tokens stay revoked."""
    await by(deactivate_credential)(partner, client_id)
    await by(activate_credential)(partner, client_id)


@pytest.mark.parametrize(
    ("act", "status"),
    [
        (by(deactivate_credential), 401),
        (by(revoke_tokens), 401),
        (by(rotate_secret), 401),
        (off_and_on, 401),
        (by(update_credential, changes=Changes(permissions=frozenset({"read"}))), 403),
    ],
    ids=["deactivated", "revoked", "rotated", "off and on", "without the permission"],
)
def test_permissions_are_checked_after_the_body_arrived(
    partner: ApiPartner, monkeypatch: pytest.MonkeyPatch, act: Act, status: int
) -> None:
    """A body may trickle for a minute, and an attacker would keep many of them ready."""
    of_partner = "SELECT client_id FROM client_organizations WHERE organization_id = :organization_id"
    client_id = str(partner.app.value(of_partner, organization_id=partner.organization_id))

    async def read_late(*values: Any, **options: Any) -> bytes:
        body = await read_body(*values, **options)
        await act(partner, client_id)
        return body

    monkeypatch.setattr(unsubscribe, "read_body", read_late)
    answer = partner.submit(out("ann@x.org"))
    assert answer.status == status, answer.body
    assert partner.stored() == NOTHING
