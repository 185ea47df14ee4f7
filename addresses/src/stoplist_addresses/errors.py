"""What every rule raises for text that is no address of its kind."""


class AddressError(ValueError):
    """The text is no address of its kind; `str()` of it tells the sender what was wrong and what would be right.

    The sentence never repeats any part of the address: it ends up in answers, logs and other people's tickets.
    """
