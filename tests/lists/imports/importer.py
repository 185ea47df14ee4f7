"""An operator who imports files into an organization, at the level of operations."""

import io
from collections.abc import Iterable
from typing import NamedTuple

from stoplist_addresses.lists import ListFile, open_list

from stoplist.lists.imports.check import ListCheck
from stoplist.lists.imports.lifecycle import begin_import, take_over
from stoplist.lists.imports.list_options import list_options
from stoplist.lists.imports.model import Import, ImportOptions
from stoplist.lists.imports.part_reader import PartReader
from stoplist.lists.imports.run import ImportRun, run_import
from stoplist.organizations.target import Target, find_target_of_person
from stoplist.unsubscribes.channel import CHANNELS
from tests.builders import ADMINISTRATOR
from tests.constants import DAY_MS
from tests.unsubscribes.partner import OptOutDeployment, Organization, written

Row = tuple[str, int]
"""An address, and the time of its opt-out in ms since 1970 UTC."""


def rows_of(deployment: OptOutDeployment, count: int) -> list[Row]:
    """Return a row for each of so many persons, who opted out a day ago, one after the other."""
    return [(f"person-{number}@example.org", deployment.now_ms - DAY_MS + number) for number in range(count)]


def list_of(rows: Iterable[tuple[str, int | None]]) -> bytes:
    """Return a CSV file of these rows; a time that is None is missing."""
    lines = (f"{address},{'' if at_ms is None else written(at_ms)}\n" for address, at_ms in rows)
    return ("address,occurred_at\n" + "".join(lines)).encode()


class Importer(NamedTuple):
    """Imports into a group of an organization (None: all groups), `rows_per_part` rows to a part."""

    organization: Organization
    rows_per_part: int = 3
    group_id: str | None = None
    as_of_ms: int | None = None

    async def target(self) -> Target:
        """Return the organization and the group as a target."""
        database, slug = self.organization.deployment.database, self.organization.slug
        return await find_target_of_person(ADMINISTRATOR, database, org_slug=slug, group_id=self.group_id)

    @property
    def options(self) -> ImportOptions:
        return ImportOptions(now_ms=self.organization.deployment.now_ms, as_of_ms=self.as_of_ms)

    async def begin(self) -> ImportRun:
        """Begin an import."""
        deployment = self.organization.deployment
        begun = await begin_import(
            ADMINISTRATOR,
            deployment.stores,
            CHANNELS[self.organization.channel],
            await self.target(),
            all_groups=self.group_id is None,
            file_name="list.csv",
            options=self.options,
        )
        return ImportRun(ADMINISTRATOR, deployment.stores, begun)

    async def resume(self, import_id: str) -> ImportRun:
        """Take an import over."""
        deployment = self.organization.deployment
        found = await take_over(ADMINISTRATOR, deployment.stores, import_id)
        return ImportRun(ADMINISTRATOR, deployment.stores, found)

    async def reader(self, content: bytes, run: ImportRun | None = None) -> PartReader:
        """Return a reader of the file, after the rows that the import has taken."""
        opened = await self.opened(content, self.options if run is None else run.current.options)
        if run is not None and run.current.row_count:
            assert opened.skip(run.current.row_count) == run.current.sha256
        return PartReader(opened, CHANNELS[self.organization.channel], rows=self.rows_per_part)

    async def opened(self, content: bytes, options: ImportOptions) -> ListFile:
        """Return the opened file."""
        organization = self.organization
        channel, database = CHANNELS[organization.channel], organization.deployment.database
        return open_list(io.BytesIO(content), await list_options(database, organization.feed_id, channel, options))

    async def take(self, content: bytes) -> Import:
        """Import a whole file."""
        run = await self.begin()
        return await run_import(run, await self.reader(content, run))

    async def check(self, content: bytes) -> ListCheck:
        """Go through a whole file without storing anything."""
        stores, channel = self.organization.deployment.stores, CHANNELS[self.organization.channel]
        target = await self.target()
        group_no = 0 if target.group is None else target.group.number
        check = ListCheck(ADMINISTRATOR, stores, channel, target, group_no)
        reader = await self.reader(content)
        while (part := await reader.next_part()) is not None:
            await check.take(part)
        return check
