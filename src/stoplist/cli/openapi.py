"""`stoplist openapi`: the description of the API."""

import click

from stoplist.cli.context import data_dir_option, settings_of
from stoplist.cli.printing import json_option, print_line
from stoplist.web.reference.openapi import encoded


@click.command("openapi")
@data_dir_option
@json_option
def command(data_dir: str | None, as_json: bool) -> None:
    """Print the OpenAPI 3.0.3 description of the API, for code generators and other tools.

    It is what a server with the same STOPLIST_BASE_URL has at /openapi.json, and is JSON with --json and without. No
    database is needed, and none is touched.

    Example: stoplist openapi > stoplist-openapi.json
    """
    print_line(encoded(settings_of(data_dir).base_url).decode().rstrip("\n"))
