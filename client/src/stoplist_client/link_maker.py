"""Makes the links by which people opt out themselves, without asking the service.

Source: docs/interface.md section D15.
"""

import re

from stoplist_addresses import RULES
from stoplist_addresses.link_tokens import LinkContent, LinkKey, cut_source, is_link_key

from stoplist_client.errors import ConfigurationError
from stoplist_client.model import Channel
from stoplist_client.secret import Secret

_BASE_URL = re.compile(r"https://[A-Za-z0-9._:\[\]-]+/?", re.ASCII)
_GROUP_ID = re.compile("grp_[0-9A-Za-z]{22}")


class LinkMaker:
    """Makes opt-out links with a link key. Needs no network, and may be shared by threads.

    base_url:  where the links lead: the service's base address, or its address for links
    link_key:  `svc_lk_…`, as it was shown once
    """

    def __init__(self, base_url: str, link_key: str | Secret) -> None:
        link_key = Secret(link_key)  # no traceback shows it
        if _BASE_URL.fullmatch(base_url) is None:
            raise ConfigurationError("base_url must be https:// and a host, optionally with a port, and nothing else.")
        if not is_link_key(link_key.reveal()):
            raise ConfigurationError("link_key must be svc_lk_ and 49 letters and digits, exactly as it was shown.")
        self._key = LinkKey(link_key.reveal())
        self._prefix = f"{base_url.rstrip('/')}/u/"

    def url(self, channel: Channel, address: str, *, group_id: str | None = None, source: str | None = None) -> str:
        """Return the link of a person, always the same: by default, to opt out of all groups of the organization.

        `source` says where the link stands, in up to 64 bytes; what is longer is cut. Raises
        `stoplist_addresses.AddressError` for an address that the service would not accept.
        """
        if channel not in RULES:
            raise ValueError("channel must be email, sms or phone.")
        if group_id is not None and _GROUP_ID.fullmatch(group_id) is None:
            raise ValueError("group_id must be grp_ followed by 22 letters and digits.")
        source = cut_source(source) if source else None
        return self._prefix + self._key.token(LinkContent(channel, group_id, RULES[channel](address), source))

    def headers(self, address: str, *, group_id: str | None = None, source: str | None = None) -> dict[str, str]:
        """Return the two headers of an e-mail that make mailbox providers offer a one-click opt-out (RFC 8058).

        The message must be signed by DKIM, both headers included. Arguments and errors as for `url`.
        """
        link = self.url("email", address, group_id=group_id, source=source)
        return {"List-Unsubscribe": f"<{link}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}

    def __repr__(self) -> str:
        return f"LinkMaker({self._key.key_id})"
