"""The exports of usual systems: one entry of a table each.

Headers and words are compared as `normalized` and `word` write them. What the documentation named in `based_on` does
not say is not guessed: a word in no table makes a bad row, and a time zone that is not documented must be stated.
Source: docs/interface.md section D12, Formats.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from stoplist_addresses.lists.model import Field

EMAIL = frozenset({"email"})
PHONES = frozenset({"sms", "phone"})
SMS = frozenset({"sms"})
ANY = EMAIL | PHONES


def normalized(text: str) -> str:
    """Return a header without case, white space, hyphens, dots and underscores."""
    return re.sub(r"[\s._-]", "", text).lower()


def word(text: str) -> str:
    """Return a cell without case and outer white space."""
    return text.strip().lower()


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a status column. None for `not_opted_out` means: all words that are not in `opted_out`."""

    opted_out: frozenset[str]
    not_opted_out: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """An export of a system.

    A file whose header has all of `signature` is known by it; if `is_exact`, only one that has nothing else. A format
    without signature must be named. `columns` has the header of each field, `reason` the reason of rows that say none
    that is known, and `other` the headers that seem to say a status, but do not decide.
    """

    name: str
    title: str
    based_on: str
    channels: frozenset[str]
    columns: Mapping[Field, str]
    signature: frozenset[str] = frozenset()
    is_exact: bool = False
    time_zone: str | None = None
    reason: str | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    statuses: Mapping[str, Words] = field(default_factory=dict)
    other: frozenset[str] = frozenset()


_MAILGUN = "documentation.mailgun.com: the columns of the files that the list of {} imports; times are RFC 2822."
_SENDGRID = "docs.sendgrid.com, Suppressions: the fields of {}; `created` is a Unix time."

# Stoplist's own export: docs/interface.md section D12.
STOPLIST = Format(
    name="stoplist",
    title="An export of Stoplist, with or without its history",
    based_on="docs/interface.md section D12, Export.",
    channels=ANY,
    columns={"address": "address", "occurred_at": "occurredat", "reason": "reason", "source": "source"},
    signature=frozenset({"id", "address", "addressdigest", "groupid", "status", "occurredat", "recordedat", "seq"}),
    statuses={"status": Words(frozenset({"unsubscribed"}), frozenset({"resubscribed"}))},
)

# What an export with its history has besides.
HISTORY_COLUMNS = frozenset({"submissionid", "actorkind", "actorid"})

FORMATS: tuple[Format, ...] = (
    Format(
        name="amazon-ses",
        title="Amazon SES: the suppression list of an account",
        based_on="docs.aws.amazon.com, SES API v2, ListSuppressedDestinations: the fields and reasons of a summary.",
        channels=EMAIL,
        columns={"address": "emailaddress", "occurred_at": "lastupdatetime", "reason": "reason"},
        signature=frozenset({"emailaddress", "reason", "lastupdatetime"}),
        reasons={"bounce": "bounce", "complaint": "complaint"},
    ),
    Format(
        name="mailchimp",
        title="Mailchimp: the unsubscribed contacts of an audience",
        based_on="mailchimp.com/help, View or Export Contacts: the file of unsubscribed contacts, which has the "
        "address and UNSUB_TIME. It does not say of which time zone that is.",
        channels=EMAIL,
        columns={"address": "emailaddress", "occurred_at": "unsubtime"},
        signature=frozenset({"emailaddress", "unsubtime"}),
        reason="unsubscribe",
        other=frozenset({"optintime", "optinip"}),
    ),
    Format(
        name="mailgun",
        title="Mailgun: unsubscribes",
        based_on=_MAILGUN.format("unsubscribes"),
        channels=EMAIL,
        columns={"address": "address", "occurred_at": "createdat"},
        signature=frozenset({"address", "tags", "createdat"}),
        reason="unsubscribe",
    ),
    Format(
        name="mailgun-bounces",
        title="Mailgun: bounces",
        based_on=_MAILGUN.format("bounces"),
        channels=EMAIL,
        columns={"address": "address", "occurred_at": "createdat"},
        signature=frozenset({"address", "code", "error", "createdat"}),
        reason="bounce",
    ),
    Format(
        name="mailgun-complaints",
        title="Mailgun: complaints",
        based_on=_MAILGUN.format("complaints"),
        channels=EMAIL,
        columns={"address": "address", "occurred_at": "createdat"},
        reason="complaint",
    ),
    Format(
        name="postmark",
        title="Postmark: the suppressions of a message stream",
        based_on="postmarkapp.com/developer/api/suppressions-api: the fields of a suppression dump, and its reasons. "
        "Who asked for a ManualSuppression is in Origin, which becomes the source.",
        channels=EMAIL,
        columns={
            "address": "emailaddress",
            "occurred_at": "createdat",
            "reason": "suppressionreason",
            "source": "origin",
        },
        signature=frozenset({"emailaddress", "suppressionreason", "origin", "createdat"}),
        reasons={"hardbounce": "bounce", "spamcomplaint": "complaint", "manualsuppression": "manual"},
    ),
    Format(
        name="sendgrid",
        title="SendGrid: unsubscribes",
        based_on=_SENDGRID.format("a global suppression"),
        channels=EMAIL,
        columns={"address": "email", "occurred_at": "created"},
        signature=frozenset({"email", "created"}),
        is_exact=True,
        reason="unsubscribe",
    ),
    Format(
        name="sendgrid-bounces",
        title="SendGrid: bounces",
        based_on=_SENDGRID.format("a bounce") + " A block has the same ones, and is no bounce: the header cannot tell.",
        channels=EMAIL,
        columns={"address": "email", "occurred_at": "created"},
        reason="bounce",
        other=frozenset({"status"}),
    ),
    Format(
        name="sendgrid-spam-reports",
        title="SendGrid: spam reports",
        based_on=_SENDGRID.format("a spam report"),
        channels=EMAIL,
        columns={"address": "email", "occurred_at": "created"},
        signature=frozenset({"email", "created", "ip"}),
        is_exact=True,
        reason="complaint",
    ),
    Format(
        name="sendgrid-invalid-emails",
        title="SendGrid: invalid addresses",
        based_on=_SENDGRID.format("an invalid email"),
        channels=EMAIL,
        columns={"address": "email", "occurred_at": "created"},
        reason="invalid_address",
    ),
    Format(
        name="sparkpost",
        title="SparkPost: the suppression list",
        based_on="developers.sparkpost.com/api/suppression-list: the attributes of a suppression, and its sources. "
        "Both types say that somebody opted out.",
        channels=EMAIL,
        columns={"address": "recipient", "occurred_at": "created", "reason": "source", "source": "description"},
        signature=frozenset({"recipient", "type", "source", "description", "created"}),
        reasons={
            "spam complaint": "complaint",
            "list unsubscribe": "unsubscribe",
            "unsubscribe link": "unsubscribe",
            "bounce rule": "bounce",
            "manually added": "manual",
            "compliance": "legal",
        },
    ),
    STOPLIST,
    Format(
        name="telnyx",
        title="Telnyx: opt-outs of messaging",
        based_on="developers.telnyx.com/api/messaging/list-opt-outs: the fields of an opt-out. The example of "
        "created_at has no offset, and nothing says of which time zone it is.",
        channels=SMS,
        columns={"address": "to", "occurred_at": "createdat", "source": "keyword"},
        signature=frozenset({"from", "to", "messagingprofileid", "keyword", "createdat"}),
        reason="stop_keyword",
    ),
    Format(
        name="twilio",
        title="Twilio: consents",
        based_on="www.twilio.com/docs/messaging/features/consent-api: the fields of a consent, and its states. "
        "A list of opted-out numbers is documented nowhere.",
        channels=SMS,
        columns={"address": "contactid", "occurred_at": "dateofconsent", "source": "source"},
        signature=frozenset({"contactid", "status", "dateofconsent"}),
        reason="unsubscribe",
        statuses={"status": Words(frozenset({"opt-out"}), frozenset({"opt-in", "re-opt-in"}))},
    ),
)


def known_format(name: str) -> Format | None:
    """Return the format of this name."""
    return next((each for each in FORMATS if each.name == name), None)


def recognized_format(headers: frozenset[str], channel: str) -> Format | None:
    """Return the format whose export has these headers, normalized: the one with the longest signature."""
    fitting = [
        each
        for each in FORMATS
        if channel in each.channels
        and each.signature
        and (each.signature == headers if each.is_exact else each.signature <= headers)
    ]
    return max(fitting, key=lambda each: len(each.signature), default=None)
