"""A copy of the list on this host: whom may I write to, answered in microseconds and without the network.

Imported by its users alone: sqlite3 and the address rules cost more than the rest of the package.
"""

from stoplist_client.mirror.group import ANY_GROUP, AnyGroup
from stoplist_client.mirror.mirror import Mirror
from stoplist_client.mirror.model import Checked, FeedSynced, Followed, Synced, Verdict

__all__ = ["ANY_GROUP", "AnyGroup", "Checked", "FeedSynced", "Followed", "Mirror", "Synced", "Verdict"]
