"""The error of all address rules."""


class AddressError(ValueError):
    """The text is not a valid address. The message says what is wrong and what would be right.

    It never repeats any part of the address, since it appears in answers, logs and tickets.
    """
