"""`stoplist doctor`: examines the installation, and changes nothing."""

import asyncio
import os
import sys

import click
import msgspec

from stoplist.cli.context import ENV_FILE, data_dir_option
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.maintenance.doctor.checks import examine
from stoplist.maintenance.doctor.finding import WRONG, Finding


@click.command("doctor")
@data_dir_option
@json_option
def command(data_dir: str | None, as_json: bool) -> None:
    """Examine the installation: settings, database, clock, files, certificate, limit store.

    One line a check: ok, warning, wrong (and what would be right) or not checked. Exit status 1 when something is
    wrong. Nothing is changed; servers may run meanwhile. To be run as the server's account, with its settings.
    """
    findings = asyncio.run(examine(os.environ, env_file=ENV_FILE, data_dir=data_dir))
    if as_json:
        print_json([msgspec.to_builtins(finding) for finding in findings])
    else:
        _print(findings)
    if any(finding.status == WRONG for finding in findings):
        sys.exit(1)


def _print(findings: list[Finding]) -> None:
    names = max(len(finding.check) for finding in findings)
    for finding in findings:
        print_line(f"{finding.check:<{names}}  {finding.status:<11}  {finding.text}")
