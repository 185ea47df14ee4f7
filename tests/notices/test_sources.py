"""The sources of notices: one notice a change of state, in its transaction (docs/interface.md section D16)."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from stoplist.errors import Refused
from stoplist.limits.memory import MemoryLimiter
from stoplist.links.opt_out import undo_opt_out
from stoplist.links.reversal import reverse_link_key
from stoplist.lists.imports import lifecycle
from stoplist.lists.imports.lifecycle import ImportTaken, discard_import
from stoplist.lists.imports.model import Import
from stoplist.lists.imports.reversal import reverse_import
from stoplist.notices import outbox
from stoplist.oauth.authentication import PresentedCredentials
from stoplist.oauth.grants import GRANTS
from stoplist.oauth.outcome import Outcome, TokenRequest, TokenStores
from stoplist.records.reversal import reverse
from tests.builders import ADMINISTRATOR, make_key, make_token
from tests.deployment import in_loop
from tests.links.link_sender import SOMEBODY, new_sender
from tests.lists.imports.importer import Importer, list_of
from tests.notices.operator import NoticeDeployment
from tests.unsubscribes.partner import back, out, written

LIST = [(f"person-{number}@example.org", 1_000 + number) for number in range(7)]


async def reverse_all(deployment: NoticeDeployment, imported: Import) -> None:
    async for _ in reverse_import(ADMINISTRATOR, deployment.stores, imported.import_id):
        deployment.clock.advance(1)


async def refresh(deployment: NoticeDeployment, refresh_token: str) -> Outcome:
    stores = TokenStores(
        database=deployment.database,
        clock=deployment.clock,
        limiter=MemoryLimiter(deployment.clock),
        refresh_chain_days=0,
    )
    request = TokenRequest(presented=PresentedCredentials(), refresh_token=refresh_token, source="192.0.2.1")
    return await GRANTS["refresh_token"](SOMEBODY, stores, request)


@in_loop
async def test_a_reuse_alarm_makes_one_notice(deployment: NoticeDeployment) -> None:
    """However often the used token is presented, and by how many at once."""
    organization = await deployment.new_organization()
    key = await make_key(deployment.database, deployment.clock, organization.slug)
    used = await used_token(deployment, key)
    outcomes = await asyncio.gather(*(refresh(deployment, used) for _ in range(5)))
    assert sum(outcome.raised_alarm for outcome in outcomes) == 1
    (notice,) = await deployment.notices()
    client_id = key.credential.client_id
    assert (notice.kind, notice.subject) == ("key.reuse_alarm", client_id)
    assert notice.data == {"client_id": client_id, "organizations": [organization.slug]}


async def used_token(deployment: NoticeDeployment, key: Any) -> str:
    """Return a refresh token that was rotated."""
    pair = await make_token(deployment.database, deployment.clock, key)
    assert (await refresh(deployment, pair.refresh_token)).pair is not None
    return pair.refresh_token


@in_loop
async def test_an_alarm_that_cannot_tell_is_not_raised(
    deployment: NoticeDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alarm and notice are one transaction: the next attempt raises both."""
    organization = await deployment.new_organization()
    used = await used_token(deployment, await make_key(deployment.database, deployment.clock, organization.slug))

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "add", AsyncMock(side_effect=LookupError))
        with pytest.raises(LookupError):
            await refresh(deployment, used)
    assert await deployment.notices() == []
    assert (await refresh(deployment, used)).raised_alarm
    assert len(await deployment.notices()) == 1


@in_loop
async def test_the_end_of_an_import_makes_one_notice(deployment: NoticeDeployment) -> None:
    """Counts, but no address and not the name of the file."""
    organization = await deployment.new_organization()
    imported = await Importer(organization).take(list_of([*LIST, ("nobody", 1)]))
    (notice,) = await deployment.notices()
    assert (notice.kind, notice.subject) == ("import.ended", imported.import_id)
    assert notice.data == {
        "import_id": imported.import_id,
        "channel": "email",
        "state": "done",
        "rows": 8,
        "bad": 1,
        "created": 7,
        "updated": 0,
        "unchanged": 0,
        "outranked": 0,
        "organizations": [organization.slug],
    }
    assert "@" not in notice.body
    assert "list.csv" not in notice.body


@in_loop
async def test_giving_an_import_up_makes_one_notice(deployment: NoticeDeployment) -> None:
    """The process that worked on it makes none: it does not end the import."""
    run = await Importer(await deployment.new_organization()).begin()
    for _ in range(2):
        await discard_import(ADMINISTRATOR, deployment.stores, run.current.import_id)
    with pytest.raises(ImportTaken):
        await lifecycle.finish_import(ADMINISTRATOR, deployment.stores, run.current)
    (notice,) = await deployment.notices()
    assert (notice.kind, notice.data["state"]) == ("import.ended", "discarded")


@in_loop
async def test_reversing_an_import_makes_one_notice(deployment: NoticeDeployment) -> None:
    """Its parts make none of their own, and an import reversed before makes none."""
    organization = await deployment.new_organization()
    imported = await Importer(organization).take(list_of(LIST))
    await deployment.forget()
    for _ in range(2):
        await reverse_all(deployment, imported)
    (notice,) = await deployment.notices()
    assert (notice.kind, notice.subject) == ("reversal.ended", imported.import_id)
    assert notice.data["corrected"] == 7
    assert notice.data["organizations"] == [organization.slug]


@in_loop
async def test_the_notice_counts_what_several_processes_took_back(deployment: NoticeDeployment) -> None:
    """A page and a command reverse an import at once: who ends it has taken back a part alone."""
    organization = await deployment.new_organization()
    await organization.submit(back(LIST[-1][0], written(500)), all_groups=True)
    imported = await Importer(organization).take(list_of(LIST))
    await deployment.forget()
    async for part in reverse_import(ADMINISTRATOR, deployment.stores, imported.import_id):
        assert part.restored == 1
        break
    await reverse_all(deployment, imported)
    (notice,) = await deployment.notices()
    counts = {name: notice.data[name] for name in ("restored", "corrected", "superseded", "confirmed")}
    assert counts == {"restored": 1, "corrected": 6, "superseded": 0, "confirmed": 0}


@in_loop
async def test_reversing_a_submission_makes_one_notice(deployment: NoticeDeployment) -> None:
    organization = await deployment.new_organization()
    submission_id = (await organization.submit(out("ann@example.org"), out("bob@example.org"))).submission_id or ""
    for _ in range(2):
        await reverse(ADMINISTRATOR, deployment.stores, submission_id)
    (notice,) = await deployment.notices()
    assert (notice.kind, notice.subject) == ("reversal.ended", submission_id)
    assert notice.data == {
        "submission_id": submission_id,
        "restored": 0,
        "corrected": 2,
        "superseded": 0,
        "confirmed": 0,
        "organizations": [organization.slug],
    }


@in_loop
async def test_a_reversal_that_is_refused_tells_nobody(deployment: NoticeDeployment) -> None:
    organization = await deployment.new_organization()
    submission_id = (await organization.submit(out("ann@example.org"))).submission_id or ""
    wrong = (await organization.submit(out("bob@example.org"))).submission_id or ""
    counts = await reverse(ADMINISTRATOR, deployment.stores, wrong)
    await deployment.forget()
    with pytest.raises(Refused):
        await reverse(ADMINISTRATOR, deployment.stores, submission_id, expected=counts + counts)
    assert await deployment.notices() == []


@in_loop
async def test_reversing_a_link_key_makes_one_notice(deployment: NoticeDeployment) -> None:
    """Its acts make none of their own; a key whose links did nothing makes none."""
    sender = await new_sender(await deployment.new_organization())
    stores, key_id = deployment.stores, sender.key.key_id
    assert [_ async for _ in reverse_link_key(ADMINISTRATOR, stores, key_id, since_ms=0)]
    assert await deployment.notices() == []
    for address in ("a@x.org", "b@x.org", "c@x.org"):
        await sender.click(address)
    assert [_ async for _ in reverse_link_key(ADMINISTRATOR, stores, key_id, since_ms=0)]
    (notice,) = await deployment.notices()
    assert (notice.kind, notice.subject) == ("reversal.ended", key_id)
    assert (notice.data["link_key_id"], notice.data["corrected"]) == (key_id, 3)


@in_loop
async def test_undo_by_a_link_tells_nobody(deployment: NoticeDeployment) -> None:
    """A person who changes their mind is no matter for an operator."""
    sender = await new_sender(await deployment.new_organization())
    clicked = await sender.click("ann@x.org")
    undone = await undo_opt_out(
        deployment.stores, await sender.link("ann@x.org"), clicked.submission_id or "", request=SOMEBODY
    )
    assert undone.is_undone
    assert await deployment.notices() == []
