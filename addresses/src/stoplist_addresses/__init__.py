"""The canonical form of e-mail addresses and phone numbers, and test vectors for it.

The server and the partners' programs must use exactly the same form, so both import it from here.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from stoplist_addresses.email import canonical_email
from stoplist_addresses.errors import AddressError
from stoplist_addresses.national import calling_codes, canonical_national_phone
from stoplist_addresses.phone import canonical_phone
from stoplist_addresses.vectors import Vector, load_vectors

__version__ = "0.2.0"

__all__ = [
    "RULES",
    "AddressError",
    "Vector",
    "__version__",
    "calling_codes",
    "canonical_email",
    "canonical_national_phone",
    "canonical_phone",
    "load_vectors",
]

# The rule of each channel.
RULES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"email": canonical_email, "sms": canonical_phone, "phone": canonical_phone}
)
