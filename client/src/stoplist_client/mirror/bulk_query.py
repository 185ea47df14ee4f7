"""Queries about many addresses. No frame here holds addresses when an error is raised."""

from collections.abc import Callable

from stoplist_addresses import RULES

from stoplist_client.errors import MirrorDiverged, MirrorTooOld, NotMirrored
from stoplist_client.mirror import asking
from stoplist_client.mirror.canonical_forms import canonical_forms
from stoplist_client.mirror.file import MirrorFile
from stoplist_client.mirror.group import Group
from stoplist_client.mirror.mirror_errors import hides_arguments
from stoplist_client.mirror.model import Checked


class BulkQuery:
    """A query about a channel, an organization and a group, for one slice of addresses after the other."""

    def __init__(
        self,
        file: MirrorFile,
        channel: str,
        *,
        org_slug: str | None,
        group_id: Group,
        max_age_s: float,
        now_s: Callable[[], float],
    ) -> None:
        self._file, self._rule = file, RULES[channel]
        self._channel, self._org_slug, self._group_id = channel, org_slug, group_id
        self._max_age_s, self._now_s = max_age_s, now_s

    @hides_arguments
    def check(self, addresses: list[str]) -> list[Checked]:
        """Return the verdict on each address, in order."""
        problems: dict[int, str] = {}
        forms = canonical_forms(self._rule, addresses, problems)
        barred = self._barred_indexes(forms)
        return [
            Checked(address, None, "invalid", problems[index])
            if form is None
            else Checked(address, form, "barred" if index in barred else "allowed")
            for index, (address, form) in enumerate(zip(addresses, forms, strict=True))
        ]

    @hides_arguments
    def filter_allowed(self, addresses: list[str]) -> list[str]:
        """Return the addresses that are valid and not barred, in order, as they were given."""
        forms = canonical_forms(self._rule, addresses)
        barred = self._barred_indexes(forms)
        return [
            address
            for index, (address, form) in enumerate(zip(addresses, forms, strict=True))
            if form is not None and index not in barred
        ]

    def _barred_indexes(self, forms: list[str | None]) -> set[int]:
        with self._file.pooled_connection() as connection:
            try:
                statements = asking.statements_for(connection, self._channel, self._org_slug, self._group_id)
                return asking.barred_indexes(
                    connection, statements, forms, max_age_s=self._max_age_s, now_s=self._now_s()
                )
            except (NotMirrored, MirrorTooOld, MirrorDiverged):
                # The file may have been replaced by another one.
                if not self._file.was_replaced(connection):
                    raise
        return self._barred_indexes(forms)
