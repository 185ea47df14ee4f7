"""A batch whose items are valid, as it is decided and stored. Source: docs/interface.md section D6."""

from typing import NamedTuple

from stoplist.actor import Actor
from stoplist.unsubscribes.items import Act
from stoplist.unsubscribes.model import sender_key


class ValidatedBatch(NamedTuple):
    """The validated acts to store, their target and their actor."""

    actor: Actor
    feed_id: int
    group_no: int
    group_id: str | None
    acts: list[Act]
    received: int
    now_ms: int
    import_id: str | None = None
    """The import whose rows these are: then the import is their sender, not the actor who began it."""

    @property
    def sender(self) -> str:
        return sender_key(self.actor) if self.import_id is None else f"import:{self.import_id}"
