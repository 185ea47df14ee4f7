"""Takes everybody out of a list of recipients who must not get this campaign.

usage: scrub_before_campaign.py RECIPIENTS.txt ALLOWED.txt GROUP_ID

One e-mail address a line. GROUP_ID is the kind of message that the campaign is, such as the newsletter. The answer
comes from a local mirror, which is brought up to date first. If the service is away, a mirror of up to an hour will do;
with an older one no list is written.

Exit status: 0 ALLOWED.txt is written; 1 it is not, and an older one is gone, lest it be used by mistake; 2 the
arguments cannot be right, and nothing was touched.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TextIO

from stoplist_client import Client, Mirror, StoplistClientError

MIRROR = os.environ.get("STOPLISTCLIENT_MIRROR", "stoplist-mirror.db")
MAX_AGE_S = 3600


def main(recipients: Path, allowed: Path, group_id: str) -> int:
    unfinished = allowed.with_name(f"{allowed.name}.unfinished")
    try:
        source = recipients.open(encoding="utf-8-sig")  # with or without a byte order mark
    except OSError as error:
        print(f"The recipients cannot be read: {error}", file=sys.stderr)
        return 2
    with source:
        if any(path.exists() and path.samefile(recipients) for path in (allowed, unfinished)):
            print(f"{recipients} would be written over: name another file for the list.", file=sys.stderr)
            return 2
        try:
            allowed.unlink(missing_ok=True)
            with a_client() as client, Mirror(MIRROR, client) as mirror:
                mirror.follow("email")
                bring_up_to_date(mirror)
                counts = scrub(mirror, source, unfinished, group_id)
            unfinished.replace(allowed)  # the list is there as a whole, or not at all
        except UnicodeDecodeError:  # its text would show an address
            print(f"No list was written: {recipients} is not in UTF-8.", file=sys.stderr)
            return 1
        except (StoplistClientError, OSError) as error:
            print(f"No list was written: {error}", file=sys.stderr)
            return 1
        finally:
            unfinished.unlink(missing_ok=True)
    print(f"{counts['allowed']} allowed, {counts['barred']} barred, {counts['invalid']} no address")
    return 0


def a_client() -> Client:
    return Client(
        os.environ["STOPLISTCLIENT_BASE_URL"],
        client_id=os.environ["STOPLISTCLIENT_CLIENT_ID"],
        client_secret=os.environ["STOPLISTCLIENT_CLIENT_SECRET"],
        org_slug=os.environ["STOPLISTCLIENT_ORG"],
        ca_file=os.environ.get("STOPLISTCLIENT_CA_FILE"),  # for a server that made its certificate itself
    )


def bring_up_to_date(mirror: Mirror) -> None:
    """As far as the service lets us: whether that is new enough is asked of the mirror, not of this attempt."""
    try:
        mirror.sync()
    except StoplistClientError as error:
        print(f"The mirror stays as it was: {error}", file=sys.stderr)


def scrub(mirror: Mirror, source: TextIO, unfinished: Path, group_id: str) -> Counter[str]:
    """Writes those who may get it, as they were spelt, and counts all by what the mirror says of them."""
    counts: Counter[str] = Counter()
    with unfinished.open("w", encoding="utf-8") as target:
        addresses = (line.strip() for line in source)
        # Raises MirrorTooOld rather than answer from a copy that may lack somebody's opt-out.
        for checked in mirror.check("email", addresses, group_id=group_id, max_age_s=MAX_AGE_S):
            counts[checked.verdict] += 1
            if checked.verdict == "allowed":
                target.write(f"{checked.address}\n")
    return counts


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
