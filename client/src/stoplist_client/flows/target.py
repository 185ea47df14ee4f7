"""Which organization and group a call is about. Source: docs/interface.md section D5."""

from urllib.parse import quote

import msgspec

from stoplist_client.errors import ConfigurationError
from stoplist_client.model import CHANNELS


class Target(msgspec.Struct, frozen=True):
    """What a request names. Nothing stands for the default organization of the key, and its default group."""

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
            raise ConfigurationError("Name a group_id or say all_groups, not both.")

    def of_call(self, org_slug: str | None, group_id: str | None, *, all_groups: bool = False) -> "Target":
        """The target of a call of a client whose own target this is; what the call names wins.

        The client's group goes with the client's organization: it is left out where the call names another one.
        """
        named = Target(org_slug, group_id, all_groups)
        if group_id is None and not all_groups and org_slug in (None, self.org_slug):
            group_id = self.group_id
        return Target(org_slug if org_slug is not None else self.org_slug, group_id, named.all_groups)

    def fields(self) -> dict[str, str | bool]:
        """As fields of a body."""
        named = {"org_slug": self.org_slug, "group_id": self.group_id, "all_groups": self.all_groups or None}
        return {name: value for name, value in named.items() if value is not None}

    def query(self) -> list[str]:
        """As parameters of a query, encoded; without `all_groups`, which a GET does not know."""
        named = (("org_slug", self.org_slug), ("group_id", self.group_id))
        return [f"{name}={encoded(value)}" for name, value in named if value is not None]


def path_of(channel: str) -> str:
    """The path of a channel's operations; ConfigurationError for a channel that there is none of."""
    if channel not in CHANNELS:
        raise ConfigurationError(f"There is no such channel: it is one of {', '.join(CHANNELS)}.")
    return f"/api/v1/unsubscribe/{channel}"


def encoded(text: str) -> str:
    """As the value of a query parameter. A lone surrogate becomes bytes that the service refuses, and nothing else."""
    return quote(text, safe="", errors="surrogatepass")
