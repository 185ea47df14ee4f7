"""The group of the message in a query. Source: docs/interface.md section D5."""

import re
from enum import Enum
from typing import Final, TypeAlias

from stoplist_client.errors import ConfigurationError

_GROUP_ID = re.compile("grp_[0-9A-Za-z]{22}")


class AnyGroup(Enum):
    """The type of ANY_GROUP."""

    ANY_GROUP = "any group"


ANY_GROUP: Final = AnyGroup.ANY_GROUP
"""A query with this bars everybody who opted out of anything of the organization on that channel."""

Group: TypeAlias = str | AnyGroup | None
"""The id of a group, ANY_GROUP, or None for a message of no named group: only the all-groups record bars it."""


def checked_group(group_id: Group) -> Group:
    """Return the group. Raises ConfigurationError for a malformed id."""
    if group_id is None or isinstance(group_id, AnyGroup):
        return group_id
    if not isinstance(group_id, str) or not _GROUP_ID.fullmatch(group_id):
        raise ConfigurationError(
            "group_id must be the id of a group (grp_ followed by 22 letters and digits); or None for a message of no "
            "named group; or ANY_GROUP, which bars everybody who opted out of anything."
        )
    return group_id
