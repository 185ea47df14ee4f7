"""`stoplist openapi`: prints the description of the API."""

import click

from stoplist.cli.context import data_dir_option, require_base_url, settings_of
from stoplist.cli.printing import json_option, print_line
from stoplist.web.reference.openapi import encoded


@click.command("openapi")
@data_dir_option
@json_option
def command(data_dir: str | None, as_json: bool) -> None:
    """Print the OpenAPI 3.0.3 description of the API, for code generators and other tools.

    The output is what a server with the same STOPLIST_BASE_URL serves at /openapi.json. It is JSON with or without
    --json. No database is needed.

    Example: stoplist openapi > stoplist-openapi.json
    """
    settings = settings_of(data_dir)
    require_base_url(settings.environment, settings)
    print_line(encoded(settings.base_url).decode().rstrip("\n"))
