"""Code samples for each operation: curl for a shell, and Python with its standard library only.

They work as they are, with a key in CLIENT_ID and CLIENT_SECRET and a token in TOKEN; a test runs them all.
"""

import json
from textwrap import dedent

from stoplist.unsubscribes.channel import Channel
from stoplist.web.reference.examples import PEOPLE, batches

Samples = list[dict[str, str]]


def get_tokens(url: str) -> Samples:
    """Return samples that get tokens for a key and for a refresh token."""
    return [
        _curl(
            f"""\
            curl -sS {url} \\
              -u "$CLIENT_ID:$CLIENT_SECRET" \\
              -d grant_type=client_credentials
            """
        ),
        _curl(
            f"""\
            curl -sS {url} \\
              -d grant_type=refresh_token \\
              -d refresh_token="$REFRESH_TOKEN"
            """,
            "curl, with a refresh token",
        ),
        _python(
            f"""\
            import base64
            import json
            import os
            import urllib.request

            key = os.environ["CLIENT_ID"], os.environ["CLIENT_SECRET"]
            basic = base64.b64encode(":".join(key).encode()).decode()
            request = urllib.request.Request(
                "{url}",
                data=b"grant_type=client_credentials",
                headers={{"Authorization": "Basic " + basic}},
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                tokens = json.load(answer)
            print(tokens["access_token"])
            """
        ),
    ]


def list_unsubscribes(url: str, channel: Channel) -> Samples:
    """Return samples that follow all records and look one up."""
    address = PEOPLE[channel.name].first
    return [
        _curl(
            f"""\
            curl -sS --compressed \\
              "{url}?limit=1000" \\
              -H "Authorization: Bearer $TOKEN"
            """
        ),
        _curl(
            f"""\
            curl -sS -G {url} \\
              --data-urlencode "address={address}" \\
              -H "Authorization: Bearer $TOKEN"
            """,
            "curl, to look up an address",
        ),
        _python(
            f"""\
            import json
            import os
            import urllib.parse
            import urllib.request
            from pathlib import Path

            url = "{url}"
            access = {{"Authorization": "Bearer " + os.environ["TOKEN"]}}
            kept = Path("{channel.name}.cursor")
            query = {{"limit": "10000"}}
            if kept.exists():
                query["cursor"] = kept.read_text()

            has_more = True
            while has_more:
                target = url + "?" + urllib.parse.urlencode(query)
                request = urllib.request.Request(target, headers=access)
                with urllib.request.urlopen(request, timeout=30) as answer:
                    page = json.load(answer)
                for record in page["items"]:
                    # Store it here.
                    print(record["address"], record["status"])
                # Only now, so that none of them is ever lost.
                kept.write_text(page["next_cursor"])
                query["cursor"] = page["next_cursor"]
                has_more = page["has_more"]
            """
        ),
    ]


def submit_unsubscribes(url: str, channel: Channel) -> Samples:
    """Return samples that submit two opt-outs."""
    batch = json.dumps(batches(channel)["Two opt-outs"], indent=2)
    return [
        _sample(
            "Shell",
            "curl",
            f"curl -sS {url} \\\n"
            '  -H "Authorization: Bearer $TOKEN" \\\n'
            '  -H "Content-Type: application/json" \\\n'
            f"  -d '{_indented(batch, 2)}'\n",
        ),
        _sample(
            "Python",
            "Python",
            dedent(
                f"""\
                import json
                import os
                import urllib.error
                import urllib.request

                batch = BATCH
                request = urllib.request.Request(
                    "{url}",
                    data=json.dumps(batch).encode(),
                    headers={{
                        "Authorization": "Bearer " + os.environ["TOKEN"],
                        "Content-Type": "application/json",
                    }},
                )
                try:
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        print(json.load(answer))
                except urllib.error.HTTPError as refusal:
                    raise SystemExit(refusal.read().decode())  # says what to correct
                """
            ).replace("BATCH", json.dumps(batches(channel)["Two opt-outs"], indent=4)),
        ),
    ]


def _curl(source: str, label: str = "curl") -> dict[str, str]:
    return _sample("Shell", label, dedent(source))


def _python(source: str) -> dict[str, str]:
    return _sample("Python", "Python", dedent(source))


def _sample(language: str, label: str, source: str) -> dict[str, str]:
    return {"lang": language, "label": label, "source": source}


def _indented(text: str, spaces: int) -> str:
    return text.replace("\n", "\n" + " " * spaces)
