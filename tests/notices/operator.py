"""A deployment whose notices a test reads, at the level of operations."""

from typing import Any, NamedTuple

import msgspec

from stoplist.db import Transaction
from stoplist.notices import outbox
from stoplist.notices.model import IMPORT_ENDED
from stoplist.staff.people import create_person
from tests.builders import ADMINISTRATOR, execute, sql
from tests.unsubscribes.partner import OptOutDeployment

_STORED = sql("SELECT * FROM notices ORDER BY created_ms, notice_id")
_DELIVERIES = sql("SELECT * FROM notice_deliveries ORDER BY notice_id, via")
_EMAILS = sql("SELECT person_id, email FROM people")


class StoredNotice(NamedTuple):
    """A notice as it is stored; `data` is of its body."""

    notice_id: str
    kind: str
    subject: str
    data: dict[str, Any]
    body: str


class NoticeDeployment(OptOutDeployment):
    """A deployment with notices."""

    async def forget(self) -> None:
        """Delete all notices and people."""
        for table in (
            "notice_deliveries",
            "notices",
            "notice_states",
            "sign_in_links",
            "person_organizations",
            "people",
        ):
            await execute(self.database, f"DELETE FROM {table}")  # noqa: S608

    async def notices(self) -> list[StoredNotice]:
        """Return all notices, the oldest first; none holds an address."""
        rows = await self.database.all(_STORED)
        assert not [row["body"] for row in rows if "@" in row["body"]]
        return [
            StoredNotice(
                row["notice_id"], row["kind"], row["subject"], msgspec.json.decode(row["body"])["data"], row["body"]
            )
            for row in rows
        ]

    async def deliveries(self) -> list[dict[str, Any]]:
        """Return all deliveries."""
        return [dict(row) for row in await self.database.all(_DELIVERIES)]

    async def recipients(self) -> list[str]:
        """Return to whom notices go: `webhook`, and e-mail addresses."""
        emails = {f"mail:{row['person_id']}": row["email"] for row in await self.database.all(_EMAILS)}
        return sorted(emails.get(row["via"], row["via"]) for row in await self.deliveries())

    async def add(self, kind: str = IMPORT_ENDED, subject: str = "imp_1", **facts: Any) -> str:
        """Add a notice, as an operation does."""

        async def add(transaction: Transaction) -> str:
            return await outbox.add(transaction, kind, subject, at_ms=self.now_ms, **facts)

        return await self.database.write(add)

    async def person(self, email: str, **rights: Any) -> None:
        """Create a person with these rights."""
        await create_person(ADMINISTRATOR, self.database, self.clock, email=email, **rights)
