"""Exports of the organizations of tests, read back from their files."""

import csv
import io
import json
from typing import Any

from stoplist.actor import Actor
from stoplist.lists.exports.export import Export, ExportRequest, begin_export
from stoplist.lists.exports.layouts import CSV
from stoplist.unsubscribes.channel import CHANNELS
from tests.unsubscribes.partner import Organization
from tests.unsubscribes.people import admin


async def begin(organization: Organization, *, by: Actor | None = None, **wanted: Any) -> Export:
    """Begin an export as an admin of the organization."""
    request = ExportRequest(org_slug=wanted.pop("org_slug", organization.slug), **wanted)
    channel = CHANNELS[organization.channel]
    return await begin_export(by or admin(organization), organization.deployment.stores, channel, request)


async def whole(export: Export) -> bytes:
    """Return the file."""
    return b"".join([part async for part in export.parts()])


async def exported(organization: Organization, **wanted: Any) -> list[dict[str, str]]:
    """Return the rows of a CSV export."""
    return csv_rows(await whole(await begin(organization, layout=CSV, **wanted)))


def csv_rows(file: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.decode(), newline=""), strict=True))


def ndjson_rows(file: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.splitlines()]
