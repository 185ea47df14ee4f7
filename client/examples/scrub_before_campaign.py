"""Removes everybody from a list of recipients who must not receive this campaign.

usage: scrub_before_campaign.py RECIPIENTS.txt ALLOWED.txt GROUP_ID

RECIPIENTS.txt has one e-mail address per line. GROUP_ID is the group of the campaign, such as the newsletter. The
answers come from a local mirror, which is synchronised first. If the service is unavailable, a mirror that is up to an
hour old is used; with an older one, no list is written.

Exit status: 0 if ALLOWED.txt was written; 1 if not (an older file was removed, so that nobody uses it by mistake); 2 if
the arguments are wrong (no file was changed).
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
        source = recipients.open(encoding="utf-8-sig")  # accepts a byte order mark
    except OSError as error:
        print(f"The recipients cannot be read: {error}", file=sys.stderr)
        return 2
    with source:
        if any(path.exists() and path.samefile(recipients) for path in (allowed, unfinished)):
            print(f"{recipients} would be overwritten: use another file for the list.", file=sys.stderr)
            return 2
        try:
            allowed.unlink(missing_ok=True)
            with create_client() as client, Mirror(MIRROR, client) as mirror:
                mirror.follow("email")
                synchronise(mirror)
                counts = scrub(mirror, source, unfinished, group_id)
            unfinished.replace(allowed)  # atomic: the list is complete or does not exist
        except UnicodeDecodeError:  # its message would show an address
            print(f"No list was written: {recipients} is not in UTF-8.", file=sys.stderr)
            return 1
        except (StoplistClientError, OSError) as error:
            print(f"No list was written: {error}", file=sys.stderr)
            return 1
        finally:
            unfinished.unlink(missing_ok=True)
    print(f"{counts['allowed']} allowed, {counts['barred']} barred, {counts['invalid']} invalid")
    return 0


def create_client() -> Client:
    return Client(
        os.environ["STOPLISTCLIENT_BASE_URL"],
        client_id=os.environ["STOPLISTCLIENT_CLIENT_ID"],
        client_secret=os.environ["STOPLISTCLIENT_CLIENT_SECRET"],
        org_slug=os.environ["STOPLISTCLIENT_ORG"],
        ca_file=os.environ.get("STOPLISTCLIENT_CA_FILE"),  # for a server with a self-made certificate
    )


def synchronise(mirror: Mirror) -> None:
    """Try to update the mirror. `scrub` decides by the mirror's age whether it is new enough."""
    try:
        mirror.sync()
    except StoplistClientError as error:
        print(f"The mirror was not updated: {error}", file=sys.stderr)


def scrub(mirror: Mirror, source: TextIO, unfinished: Path, group_id: str) -> Counter[str]:
    """Write the allowed addresses as they were given, and count all addresses by verdict."""
    counts: Counter[str] = Counter()
    with unfinished.open("w", encoding="utf-8") as target:
        addresses = (line.strip() for line in source)
        # Raises MirrorTooOld if the mirror may lack recent opt-outs.
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
