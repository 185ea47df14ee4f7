"""`stoplist-client logout`: forget a key."""

import click

from stoplist_client.cli.context import forget_key
from stoplist_client.cli.exit_status import Failed
from stoplist_client.cli.options import Command, common_options
from stoplist_client.cli.printing import print_line
from stoplist_client.cli.profile import profile_names, remove, stored_if_any
from stoplist_client.cli.profile_selection import named_or_default


@click.command("logout", cls=Command)
@common_options
def command(profile_name: str | None) -> None:
    """Remove a profile, with its secret and its tokens.

    The key itself goes on working, until its administrator deactivates it. The mirror stays.

    \b
    Example:
      stoplist-client logout --profile staging
    """
    name = profile_name or named_or_default()
    profile = stored_if_any(name)
    if profile is None:
        raise Failed(f"There is no profile {name!r}: nobody is logged in under that name.")
    remove(name)
    others = [other for each in profile_names() if (other := stored_if_any(each)) is not None]
    key = (profile.base_url, profile.client_id, profile.is_in_keyring)
    if key not in [(other.base_url, other.client_id, other.is_in_keyring) for other in others]:
        forget_key(profile)
    print_line(f"Logged out: the profile {name} is removed.")
    if profile.mirror.exists():
        print_line(f"The mirror {profile.mirror} is still there; it holds addresses. Delete it if nobody needs it.")
