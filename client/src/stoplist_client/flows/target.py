"""The organization and group of a call. Source: docs/interface.md section D5."""

from urllib.parse import quote

import msgspec

from stoplist_client.errors import ConfigurationError
from stoplist_client.model import CHANNELS


class Target(msgspec.Struct, frozen=True):
    """The organization and group that a request names. None stands for the default of the key."""

    org_slug: str | None = None
    group_id: str | None = None
    all_groups: bool = False

    def __post_init__(self) -> None:
        for name, value in (("org_slug", self.org_slug), ("group_id", self.group_id)):
            if value is not None and not isinstance(value, str):
                raise ConfigurationError(f"{name} must be text, not {type(value).__name__}.")
            if value == "":
                raise ConfigurationError(f"{name} is empty: leave it out, or name one.")
        if self.all_groups and self.group_id is not None:
            raise ConfigurationError("Pass group_id or all_groups, not both.")

    def for_call(self, org_slug: str | None, group_id: str | None, *, all_groups: bool = False) -> "Target":
        """Return the target of a call, where this is the target of its client. The arguments of the call win.

        The client's group belongs to the client's organization, so it is left out if the call names another one.
        """
        named = Target(org_slug, group_id, all_groups)
        if group_id is None and not all_groups and org_slug in (None, self.org_slug):
            group_id = self.group_id
        return Target(org_slug if org_slug is not None else self.org_slug, group_id, named.all_groups)

    def fields(self) -> dict[str, str | bool]:
        """Return the fields of a request body."""
        named = {"org_slug": self.org_slug, "group_id": self.group_id, "all_groups": self.all_groups or None}
        return {name: value for name, value in named.items() if value is not None}

    def query(self) -> list[str]:
        """Return encoded query parameters, without `all_groups`, which a GET does not have."""
        named = (("org_slug", self.org_slug), ("group_id", self.group_id))
        return [f"{name}={query_value(value)}" for name, value in named if value is not None]


def channel_path(channel: str) -> str:
    """Return the path of a channel's operations. Raises ConfigurationError for an unknown channel."""
    if channel not in CHANNELS:
        raise ConfigurationError(f"There is no such channel: use one of {', '.join(CHANNELS)}.")
    return f"/api/v1/unsubscribe/{channel}"


def query_value(text: str) -> str:
    """Encode the value of a query parameter. A lone surrogate becomes bytes that the service refuses."""
    return quote(text, safe="", errors="surrogatepass")
