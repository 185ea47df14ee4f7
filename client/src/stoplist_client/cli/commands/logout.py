"""`stoplist-client logout`: remove a stored key."""

import click

from stoplist_client.cli.context import forget_key
from stoplist_client.cli.exit_status import Failed
from stoplist_client.cli.options import Command, common_options
from stoplist_client.cli.printing import print_line
from stoplist_client.cli.profile import find_profile, profile_names, remove_profile
from stoplist_client.cli.profile_selection import default_profile_name


@click.command("logout", cls=Command)
@common_options
def command(profile_name: str | None) -> None:
    """Remove a profile with its secret and its tokens.

    The key itself stays valid until an administrator deactivates it. The mirror is kept.

    \b
    Example:
      stoplist-client logout --profile staging
    """
    name = profile_name or default_profile_name()
    profile = find_profile(name)
    if profile is None:
        raise Failed(f"There is no profile {name!r}.")
    remove_profile(name)
    others = [other for each in profile_names() if (other := find_profile(each)) is not None]
    key = (profile.base_url, profile.client_id, profile.is_in_keyring)
    if key not in [(other.base_url, other.client_id, other.is_in_keyring) for other in others]:
        forget_key(profile)
    print_line(f"Logged out: removed the profile {name}.")
    if profile.mirror.exists():
        print_line(f"The mirror {profile.mirror} was kept. It contains addresses; delete it if it is not needed.")
