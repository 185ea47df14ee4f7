"""Opens the ways by which notices leave, from the settings. Source: docs/interface.md sections D1 and D16."""

from typing import TYPE_CHECKING

from stoplist.settings import Settings

if TYPE_CHECKING:
    from stoplist.notices.mail import Mailer
    from stoplist.notices.webhook import Webhook


def open_webhook(settings: Settings) -> "Webhook | None":
    """Return the webhook of the settings; None if there is none."""
    if settings.notice_url is None:
        return None
    from stoplist.notices.webhook import Webhook  # noqa: PLC0415 - slow to import, and most deployments have none

    return Webhook(settings.notice_url, settings.notice_secrets, is_private_allowed=settings.notice_allow_private)


def open_mailer(settings: Settings) -> "Mailer | None":
    """Return the mail server of the settings; None if there is none."""
    if settings.smtp_server is None:
        return None
    from stoplist.notices.mail import Mailer  # noqa: PLC0415 - slow to import, and most deployments have none

    return Mailer(settings.smtp_server)
