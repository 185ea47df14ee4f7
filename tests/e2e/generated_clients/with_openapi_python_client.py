"""A partner's program around the client that openapi-python-client generates. Prints what the test compares.

usage: BASE_URL, CLIENT_ID and CLIENT_SECRET as variables
"""

import base64
import datetime
import json
import os
import sys
from typing import Any

from stoplist_api_client import AuthenticatedClient
from stoplist_api_client.api.e_mail import list_email_unsubscribes, submit_email_unsubscribes
from stoplist_api_client.api.tokens import get_tokens
from stoplist_api_client.models import (
    Batch,
    ClientCredentials,
    ClientCredentialsGrantType,
    InvalidCursor,
    InvalidItem,
    InvalidToken,
    Item,
    OAuthErrorResponse,
    Page,
    Refresh,
    RefreshGrantType,
    SentReason,
    Status,
    Submission,
    TokenPair,
)

BASE_URL = os.environ["BASE_URL"]
GRANT = ClientCredentials(ClientCredentialsGrantType.CLIENT_CREDENTIALS)


def basic(secret: str) -> AuthenticatedClient:
    """Return a client that sends the key."""
    credentials = base64.b64encode(f"{os.environ['CLIENT_ID']}:{secret}".encode()).decode()
    return AuthenticatedClient(BASE_URL, credentials, prefix="Basic")


def of(kind: type[Any], answer: Any) -> Any:
    """Return the answer; TypeError unless it is of this kind."""
    if not isinstance(answer, kind):
        raise TypeError(f"{answer!r} is no {kind.__name__}")
    return answer


pair = of(TokenPair, get_tokens.sync(client=basic(os.environ["CLIENT_SECRET"]), body=GRANT))
refresh = Refresh(RefreshGrantType.REFRESH_TOKEN, pair.refresh_token)
pair = of(TokenPair, get_tokens.sync(client=basic(os.environ["CLIENT_SECRET"]), body=refresh))
refused = of(OAuthErrorResponse, get_tokens.sync(client=basic("wrong"), body=GRANT))
client = AuthenticatedClient(BASE_URL, pair.access_token)
then = datetime.datetime(2026, 3, 1, 9, 30, tzinfo=datetime.UTC)
items = [
    Item("Ann@Example.com", status=Status.UNSUBSCRIBED, occurred_at=then, reason=SentReason.COMPLAINT, source="form"),
    Item("bob@example.com", status=None, occurred_at=None, reason=None),
]
submission = of(Submission, submit_email_unsubscribes.sync(client=client, body=Batch(items)))
page = of(Page, list_email_unsubscribes.sync(client=client))
found = of(Page, list_email_unsubscribes.sync(client=client, address=["ANN@example.com", "nobody@example.com"]))
submit_email_unsubscribes.sync(client=client, body=Batch([Item("carla@example.com")], all_groups=True))
later = of(Page, list_email_unsubscribes.sync(client=client, cursor=page.next_cursor))
bad_item = of(InvalidItem, submit_email_unsubscribes.sync(client=client, body=Batch([Item("nobody")])))
bad_cursor = of(InvalidCursor, list_email_unsubscribes.sync(client=client, cursor="x"))
stranger = of(InvalidToken, list_email_unsubscribes.sync(client=AuthenticatedClient(BASE_URL, "svc_at_x")))
json.dump(
    {
        "token_type": pair.token_type.value,
        "expires_in": pair.expires_in,
        "submitted": [submission.received, submission.created, [one.result.value for one in submission.items]],
        "listed": [[one.address, one.status.value, one.reason.value, one.source] for one in page.items],
        "looked_up": [found.looked_up, [one.address for one in found.items], found.next_cursor],
        "later": [[one.address, one.group_id] for one in later.items],
        "refusals": [refused.error.value, bad_item.error.value, bad_cursor.error.value, stranger.error.value],
        "bad_items": [one.item_index for one in bad_item.item_errors],
    },
    sys.stdout,
)
