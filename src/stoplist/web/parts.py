"""The parts that the application of a server is built from."""

import msgspec

from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.limits.limiter import Limiter
from stoplist.links.events import LinkEvents
from stoplist.oauth.usage import Usage
from stoplist.proof.held_requests import HeldRequests
from stoplist.proof.positions import Positions
from stoplist.proof.worst_keys import WorstKeys
from stoplist.web.metrics import Metrics
from stoplist.web.readiness import Readiness


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that an application is built from."""

    database: Database
    clock: Clock
    limiter: Limiter
    usage: Usage
    metrics: Metrics
    readiness: Readiness
    held: HeldRequests
    secret_keys: tuple[str, ...]
    base_url: str
    links_base_url: str = ""
    link_events: LinkEvents = msgspec.field(default_factory=LinkEvents)
    positions: Positions = msgspec.field(default_factory=Positions)
    worst_keys: WorstKeys = msgspec.field(default_factory=WorstKeys)
    propagation_hours: int = 48
    refresh_chain_days: int = 0
    require_two_step: str = "nobody"
    sends_mail: bool = False
    import_max_mb: int = 200
    history_days: int = 0
