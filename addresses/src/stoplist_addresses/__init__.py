"""What an address is: the one canonical form of e-mail addresses and phone numbers, and vectors to test it by.

The server and the partners' programs must agree to the letter, so both take it from here.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from stoplist_addresses.email import canonical_email
from stoplist_addresses.errors import AddressError
from stoplist_addresses.phone import canonical_phone
from stoplist_addresses.vectors import Vector, load_vectors

__version__ = "0.1.0"

__all__ = ["RULES", "AddressError", "Vector", "__version__", "canonical_email", "canonical_phone", "load_vectors"]

# The channels, and the rule of each.
RULES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"email": canonical_email, "sms": canonical_phone, "phone": canonical_phone}
)
