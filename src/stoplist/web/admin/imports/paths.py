"""The paths of imports."""

from stoplist.unsubscribes.channel import Channel

IMPORT_PATH = "/settings/imports/{import_id}"


def import_path(import_id: str) -> str:
    """Return the path of an import."""
    return f"/settings/imports/{import_id}"


def upload_path(org_slug: str, channel: Channel) -> str:
    """Return the path of the form with the file."""
    return f"/unsubscribes/{org_slug}/{channel.name}/import"
