"""`stoplist notice`: tries the ways by which notices leave."""

import asyncio

import click

from stoplist import ids
from stoplist.cli.command_group import CommandGroup
from stoplist.cli.context import data_dir_option, settings_of
from stoplist.cli.printing import json_option, print_records
from stoplist.clock import Clock
from stoplist.errors import Refused
from stoplist.notices.mail_texts import notice_text
from stoplist.notices.model import MAIL, TEST, WEBHOOK, body_text
from stoplist.notices.opening import open_mailer, open_webhook
from stoplist.notices.outcome import DeliveryOutcome
from stoplist.settings import Settings


@click.group("notice", cls=CommandGroup)
def command() -> None:
    """Try the ways by which notices leave: the webhook, and e-mail."""


@command.command("test")
@click.option("--mail", "address", metavar="ADDRESS", help="Send an e-mail to this address, too.")
@data_dir_option
@json_option
def test(address: str | None, data_dir: str | None, as_json: bool) -> None:
    """Send a test notice to STOPLIST_NOTICE_URL, at once and once.

    No database is needed, and nothing is stored. The exit status is 1 if anything was not delivered.

    Example: stoplist notice test --mail ann@example.org
    """
    outcomes = asyncio.run(_send(settings_of(data_dir), address))
    records = [{"via": way, "delivered": outcome.is_delivered, "error": outcome.error} for way, outcome in outcomes]
    print_records(records, columns=("via", "delivered", "error"), as_json=as_json, if_empty="")
    if not all(outcome.is_delivered for _, outcome in outcomes):
        raise click.exceptions.Exit(1)


async def _send(settings: Settings, address: str | None) -> list[tuple[str, DeliveryOutcome]]:
    """Send the notice by the ways that are asked for; return the outcome of each. Refused if there is no such way."""
    webhook, mailer = open_webhook(settings), open_mailer(settings)
    if address is not None and mailer is None:
        raise Refused("STOPLIST_SMTP_URL is not set, so no e-mail can be sent.")
    if webhook is not None and not settings.notice_secrets:
        raise Refused("STOPLIST_NOTICE_SECRET is not set, so nothing can be signed.")
    if webhook is None and address is None:
        raise Refused("STOPLIST_NOTICE_URL is not set, so there is no webhook to test. --mail tests the mail server.")
    notice_id, now_ms = ids.new_id(ids.NOTICE_ID), Clock().now_ms()
    body, outcomes = body_text(TEST, now_ms, {}), []
    if webhook is not None:
        outcomes.append((WEBHOOK, await webhook.post(notice_id, body, now_ms=now_ms)))
    if mailer is not None and address is not None:
        text = notice_text(TEST, body, base_url=settings.base_url)
        outcomes.append((MAIL, await mailer.send(address, text, message_id=notice_id, now_ms=now_ms)))
    return outcomes
