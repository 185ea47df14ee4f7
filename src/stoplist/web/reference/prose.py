"""The texts of the description, in the part of CommonMark that `commonmark.py` renders.

Numbers come from the constants of the code. Source: docs/interface.md sections 5, 8 and D2 to D8.
"""

from stoplist.clock import DAY_S
from stoplist.limits.sliding_log import WINDOW_S
from stoplist.oauth.model import ACCESS_TTL_S, API_PER_MINUTE, PERMISSIONS, REFRESH_TTL_S, TOKEN_PER_MINUTE
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.model import (
    DEFAULT_LIMIT,
    MAX_AHEAD_MS,
    MAX_BODY_BYTES,
    MAX_EXAMINED,
    MAX_ITEMS,
    MAX_LIMIT,
    MAX_LOOK_UPS,
)


def introduction() -> str:
    """Return the text above all operations."""
    return f"""\
Stoplist keeps the list of people who asked you to stop. You submit their opt-outs for e-mail, SMS and phone in
batches, and read back every change, whoever made it, without missing one.

## From a key to an answer

1. Ask an administrator for a key: a `client_id` and a `client_secret`. It is good for one or more organizations, one
   of them its default, and may {_listed(PERMISSIONS)} as far as it was given these permissions.
2. Get a token from `POST /oauth/token`. The access token lives {ACCESS_TTL_S // 60} minutes.
3. Send it with every request below `/api/v1`, as `Authorization: Bearer`.

The samples on this page read the key from the variables `CLIENT_ID` and `CLIENT_SECRET`, and the token from `TOKEN`.
Those in Python need nothing but its standard library. A development server has a certificate authority of its own:
with `SSL_CERT_FILE` set to the path of the `ca.pem` in its data folder, curl and Python trust it.

## Keeping a token fresh

- On `401` refresh, if you hold a refresh token; if you hold none, or the answer is `invalid_grant`, use
  `client_credentials`. Then send the request again.
- A refresh token lives {REFRESH_TTL_S // DAY_S} days and is **good once**: each refresh returns a new pair. Store the
  new one durably before you use it, and let one worker refresh at a time.
- A refresh token that comes a second time counts as stolen: every token of the key is revoked. So never repeat a
  refresh whose answer was lost; start anew with `client_credentials`.
- Some keys refresh with their secret alone; then a refresh without it is `invalid_client`. And some deployments end
  a chain of refreshes after some days: `refresh_expires_in` says what is left.

## Organizations and groups

- A request means the default organization of its key, unless it names another by `org_slug`, or a group by `group_id`,
  which selects its organization too.
- A **group** is a kind of message that people can leave on its own, such as a newsletter. A submission without
  `group_id` goes to the default group of the organization; if there is none it is refused, and never taken for more.
- `all_groups: true` records that somebody wants no message of the organization on that channel. Such a record has
  `group_id: null`.
- Do not send a message of a group to an address if its own record **or** the all-groups record is `unsubscribed`.

## Which act counts

The later act of the person wins, not the later request: so send `occurred_at` with every item. Replays, reordering and
old imports then never undo an opt-out. On a tie `unsubscribed` wins. A batch may be sent again without harm: what is
known already is `unchanged`, and what a later act stands against is `outranked`.

`resubscribed` with the reason `correction` is nobody's act: an opt-out was submitted by mistake and was taken back. It
no longer blocks messages, but it is **not a consent**: send only what you were allowed to send before the mistake.

## Following changes

Read from the start without a `cursor`, page by page, and keep the last `next_cursor`. Whenever you come back with it
you get precisely what changed since, each record once, at its latest change, opt-outs and returns alike. Cursors never
expire. `invalid_cursor` means that the server's database was restored to an earlier state, or that the cursor belongs
to other parameters: read anew without one.

**To send a cursor is to say that everything up to it is stored.** The organization sees how far each key has come, and
which lack changes for too long. A program that asks for a page before it has stored the one before sends
`Prefer: read-ahead`, and that request says nothing.

With `Prefer: wait=30`, a request at the end of the feed is held until something changes, for up to 30 seconds. Without
`Preference-Applied: wait=30` in its answer it was not held: pause before the next.

## Limits

- {API_PER_MINUTE} requests in {WINDOW_S} seconds below `/api/v1`, and {TOKEN_PER_MINUTE} at `/oauth/token`, for each
  `client_id` and all programs that use it together. An administrator can grant more.
- A batch holds 1 to {spaced(MAX_ITEMS)} items in at most {MAX_BODY_BYTES >> 20} MiB, counted after unpacking; send it
  with `Content-Encoding: gzip` if you like. A page holds up to {spaced(MAX_LIMIT)} records, {spaced(DEFAULT_LIMIT)}
  unless you say otherwise, and comes in zstd or gzip if `Accept-Encoding` allows it.
- `RateLimit-Policy` and `RateLimit` tell how much is left: `"api";r=59;t=60` means 59 more requests, and that the
  oldest counted one leaves the count in 60 seconds.

## When something goes wrong

Program against `error`, which never changes; the text beside it is for people, and says what would be right.

- `429`: wait as long as `Retry-After` says, then repeat.
- `5xx`, or no answer at all: repeat after a second, then after ever longer pauses; three times, say. That is safe for
  every operation but a refresh.
- `401`: get a new token, then repeat. Other `4xx`: correct the request first; a refused batch stored nothing.

Every answer carries an `X-Request-Id`: quote it when you ask the operator. Paths that do not exist answer `404`
(`not_found`), other methods `405` (`method_not_allowed`, with `Allow`); `HEAD` works as `GET`.
"""


def get_tokens() -> str:
    """Return the description of the token endpoint."""
    return """\
Gives a pair of tokens for the credentials of a key, or for a refresh token. The credentials come best in
`Authorization: Basic`; a client that cannot set the header sends them in the body, never in both. With a refresh token
they are not needed, unless the key demands them.

Parameters are refused in the query string and when they are repeated; unknown ones are ignored."""


def list_unsubscribes(channel: Channel) -> str:
    """Return the description of `GET`."""
    return f"""\
Needs the permission `read`. Answers in one of two ways:

- **Follow**: records in the order in which they last changed, from the start or after a `cursor`. With a `group_id`
  the records that bear on that group: its own and the all-groups ones; a page then goes through at most
  {spaced(MAX_EXAMINED)} records, so it may be short, or empty, while `has_more` is true.
- **Look up**: with one to {MAX_LOOK_UPS} times `address`, exactly these, in one page. It takes no `cursor`, and
  a `limit` changes nothing.

{_ADDRESSES[channel.name]}

An unknown parameter, or one that is repeated, is refused: a misspelt `org_slug` must not answer for another
organization."""


def submit_unsubscribes(channel: Channel) -> str:
    """Return the description of `POST`."""
    return f"""\
Needs the permission `unsubscribe`, and `resubscribe` for items of that status. All or nothing: one bad item refuses
the batch, nothing is stored, and every bad item is listed. With `Prefer: handling=lenient` the good ones are stored
instead. Once it is answered `200`, a batch outlives a crash of the server.

{_ADDRESSES[channel.name]}

An `occurred_at` in the future is refused, for opt-outs beyond {MAX_AHEAD_MS // 60_000} minutes."""


_PHONE_WORDS = (
    "Numbers are stored in E.164: they begin with `+` and the code of the country; spaces, hyphens, dots and "
    "parentheses are dropped. In a query string `+` is written `%2B`."
)
_ADDRESSES = {
    "email": "Addresses are stored in lower case where that is safe: the domain, and the letters `A` to `Z` before "
    "the `@`. Tags after `+` and dots stay.",
    "sms": _PHONE_WORDS,
    "phone": _PHONE_WORDS,
}


def spaced(number: int) -> str:
    """Return the number with non-breaking spaces between thousands, as in `10 000`."""
    return f"{number:,}".replace(",", "\N{NO-BREAK SPACE}")


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words[:-1]) + f" and `{words[-1]}`"
