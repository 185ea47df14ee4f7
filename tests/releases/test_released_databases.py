"""The database of every released version is migrated by this one, and everything in it goes on.

Source: docs/interface.md section D1, Schema.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyotp
import pytest

from stoplist.actor import Actor
from stoplist.db import schema
from stoplist.errors import SettingsError
from stoplist.proof.feed_states import compare_states, complete_states
from stoplist.records.reversal import reverse
from stoplist.rights.erasure import erase_person
from stoplist.staff import signing_in, totp_secrets
from stoplist.staff.model import SecondStep, SignedIn, StaffStores
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.feed import complete_digest_keys
from stoplist.unsubscribes.model import OptOutStores
from tests import releases
from tests.builders import ADMINISTRATOR, NEWEST, audit_rows, in_a_loop, migrated, on_database
from tests.db.catalogue import catalogue
from tests.e2e.partners import Follower
from tests.fakes import FakeClock
from tests.keys import Key
from tests.releases import Held
from tests.web.application import Answer, Application

EMAIL = "/api/v1/unsubscribe/email"
STRANGER = Actor(kind="person", id="", source_ip="192.0.2.1", request_id="0" * 24)


class Upgraded(NamedTuple):
    """This version on the migrated database of a released one, a minute after that was made."""

    app: Application
    held: Held
    url: str

    @property
    def key(self) -> Key:
        return Key(self.held.client_id, self.held.client_secret)

    @property
    def stores(self) -> OptOutStores:
        return OptOutStores(database=self.app.database, clock=self.app.clock, secret_keys=(self.held.secret_key,))

    def get(self, token: str, query: str) -> Any:
        answer = self.app.call(token, f"{EMAIL}?{query}")
        assert answer.status == 200, answer.body
        return answer.json()

    def submit(self, token: str, *addresses: str, status: str = "unsubscribed") -> Answer:
        items = [{"address": address, "status": status} for address in addresses]
        return self.app.request(
            "POST",
            EMAIL,
            headers=[("authorization", f"Bearer {token}"), ("content-type", "application/json")],
            body=json.dumps({"all_groups": True, "items": items}).encode(),
        )


@pytest.fixture(params=releases.versions())
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def upgraded(version: str, empty_database_url: str) -> Iterator[Upgraded]:
    """Restore the database of a release, and do what `stoplist migrate` and the start of a server do."""
    held = releases.restore(version, empty_database_url)
    with in_a_loop(migrated(empty_database_url)) as (run, database):
        run(complete_states(database, pause_s=0))
        run(complete_digest_keys(database))
        run(totp_secrets.renew_encryption(database, (held.secret_key,)))
        clock = FakeClock(held.made_ms + 60_000)
        app = Application(run, database, clock, secret_keys=(held.secret_key,))
        yield Upgraded(app, held, empty_database_url)


def test_a_server_asks_for_the_migration(version: str, empty_database_url: str) -> None:
    """And says so of a database that is only read."""
    releases.restore(version, empty_database_url)
    deployment = on_database(empty_database_url, schema.read)
    assert deployment is not None
    with pytest.raises(SettingsError, match="run `stoplist migrate`"):
        schema.check(deployment, environment="development", newest=NEWEST)


def test_the_schema_becomes_that_of_a_new_database(
    upgraded: Upgraded, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if upgraded.app.database.kind == "postgresql":
        new_url = str(request.getfixturevalue("postgresql_url"))
    else:
        new_url = f"sqlite:///{tmp_path / 'new.db'}"
        with in_a_loop(migrated(new_url)):
            pass
    assert catalogue(upgraded.url) == catalogue(new_url)


def test_partners_go_on_with_what_they_hold(upgraded: Upgraded) -> None:
    """Access token, refresh token, secret and cursors; nothing is lost of the feed, and its state can be reproduced."""
    app, held = upgraded.app, upgraded.held
    follower = Follower("email", 10_000)
    assert not follower.take(upgraded.get(held.access_token, "limit=10000"))
    assert list(follower.records.values()) == held.records
    assert follower.states == 1
    after_ten = upgraded.get(held.access_token, f"cursor={held.pending}&limit=10000")
    assert after_ten["items"] == held.records[10:]
    assert upgraded.get(held.access_token, f"cursor={held.cursor}")["items"] == []
    refreshed = app.refresh(held.refresh_token)
    assert refreshed.status == 200, refreshed.body
    token = refreshed.json()["access_token"]
    assert upgraded.submit(token, "new@example.org", "PERSON-0@example.org").json()["created"] == 2
    news = upgraded.get(token, f"cursor={held.cursor}")["items"]
    assert [record["address"] for record in news] == ["new@example.org", "person-0@example.org"]
    assert app.issue(upgraded.key).status == 200


def test_what_was_revoked_stays_revoked(upgraded: Upgraded) -> None:
    """A deactivated key, and a refresh token that was used: presented again, it revokes all tokens of its client."""
    app, held = upgraded.app, upgraded.held
    assert app.issue(Key(held.stopped_client_id, held.stopped_client_secret)).status == 401
    assert app.call(held.access_token).status == 200
    assert app.refresh(held.used_refresh_token).status == 400
    assert app.call(held.access_token).status == 401
    assert app.refresh(held.refresh_token).status == 400


def test_a_submission_of_then_can_be_reversed(upgraded: Upgraded) -> None:
    """Records and versions of an older release say enough to restore what held before."""
    held = upgraded.held
    before = {record["address"]: record["status"] for record in held.records if record["group_id"] is not None}
    assert [before[f"person-{number}@example.org"] for number in (5, 6, 7)] == ["unsubscribed"] * 3
    result = upgraded.app.run(reverse(ADMINISTRATOR, upgraded.stores, held.mistake))
    assert (result.restored, result.corrected) == (3, 1)
    news = {one["address"]: one["status"] for one in upgraded.get(held.access_token, f"cursor={held.cursor}")["items"]}
    assert news == dict.fromkeys(
        [*(f"person-{n}@example.org" for n in (5, 6, 7)), "mistaken@example.org"], "resubscribed"
    )
    assert upgraded.app.run(compare_states(upgraded.app.database)).differing == []


def test_a_person_of_then_can_be_erased(upgraded: Upgraded) -> None:
    """In all organizations; they stay barred, and the release is excluded from then on."""
    app, held = upgraded.app, upgraded.held
    person = "person-9@example.org"
    erased = app.run(
        erase_person(ADMINISTRATOR, upgraded.stores, CHANNELS["email"], person, org_slug=None, is_all_upgraded=True)
    )
    assert [one.org_slug for one in erased] == ["acme", "brook"]
    found = upgraded.get(held.access_token, f"address={person}")["items"]
    assert {record["status"] for record in found} == {"unsubscribed"}
    assert person not in str(upgraded.get(held.access_token, "limit=10000"))
    deployment = app.run(schema.read(app.database))
    with pytest.raises(SettingsError, match="newer; this is"):
        schema.check(deployment, environment=None, newest=deployment.schema_version - 1, program="0.1.0")


def test_people_sign_in_as_before(upgraded: Upgraded) -> None:
    """With password and app, and with a recovery code; the audit of then is whole."""
    app, held = upgraded.app, upgraded.held
    stores = StaffStores(app.database, app.clock, (held.secret_key,))

    async def sign_in(code: str) -> SignedIn:
        step = await signing_in.sign_in(
            STRANGER, stores, email=held.email, password=held.password, user_agent="Mozilla/5.0"
        )
        assert isinstance(step, SecondStep)
        return await signing_in.second_step(STRANGER, stores, ticket=step.ticket, code=code, user_agent="Mozilla/5.0")

    app.run(sign_in(held.recovery_codes[0]))
    app.run(sign_in(pyotp.TOTP(held.totp_secret).at(app.clock.now_ms() // 1000, counter_offset=1)))
    actions = {row.action for row in app.run(audit_rows(app.database))}
    assert {"organization.create", "key.create", "key.deactivate", "person.two_step", "submission.reverse"} <= actions
