"""Masks addresses for the page: enough for their owner to recognise, too little for anybody else.

The number of bullets is fixed, so that it does not tell the length. Source: docs/interface.md section D15.
"""

_BULLETS = "••••"
_SHOWN_DIGITS = 2
_A_LABEL = "xn--"


def masked(channel: str, address: str) -> str:
    """Return `j••••@e••••.com` or `••••67` for a canonical address."""
    if channel != "email":
        return _BULLETS + address[-_SHOWN_DIGITS:]
    local, _, domain = address.rpartition("@")
    labels = domain.split(".")
    return f"{local[:1]}{_BULLETS}@{_as_written(labels[0])[:1]}{_BULLETS}.{_as_written(labels[-1])}"


def _as_written(label: str) -> str:
    """Return a label of a domain as people write it: `münchen` for `xn--mnchen-3ya`."""
    if not label.startswith(_A_LABEL):
        return label
    try:
        return label.removeprefix(_A_LABEL).encode("ascii").decode("punycode")
    except UnicodeError:
        return label
