"""A local copy of the list, which answers in microseconds and without the network whom you may write to.

Imported only when it is used: sqlite3 and the address rules take longer to import than the rest of the package.
"""

from stoplist_client.mirror.group import ANY_GROUP, AnyGroup
from stoplist_client.mirror.mirror import Mirror
from stoplist_client.mirror.model import Checked, FeedSynced, Followed, Synced, Verdict, Verified

__all__ = ["ANY_GROUP", "AnyGroup", "Checked", "FeedSynced", "Followed", "Mirror", "Synced", "Verdict", "Verified"]
