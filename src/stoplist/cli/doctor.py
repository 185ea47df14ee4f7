"""`stoplist doctor`: examines the installation without changing it."""

import asyncio
import os
import sys

import click
import msgspec

from stoplist.cli.context import ENV_FILE, data_dir_option
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.maintenance.doctor.checks import run_checks
from stoplist.maintenance.doctor.finding import WRONG, Finding


@click.command("doctor")
@click.option(
    "--deep", "is_deep", is_flag=True, help="Also read every record, and compare the states of feeds with them."
)
@data_dir_option
@json_option
def command(is_deep: bool, data_dir: str | None, as_json: bool) -> None:
    """Examine the installation: settings, database, clock, files, certificate, limit store.

    Prints one line per check: ok, warning, wrong (with what would be right) or not checked. The exit status is 1 if
    something is wrong. Nothing is changed, and servers may run meanwhile. Run this as the account of the server, with
    its settings.
    """
    findings = asyncio.run(run_checks(os.environ, env_file=ENV_FILE, data_dir=data_dir, is_deep=is_deep))
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
