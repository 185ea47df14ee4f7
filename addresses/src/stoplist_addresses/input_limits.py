"""The trimmed white space and the maximum length of an input on every channel."""

# Other white space, such as no-break spaces, is never trimmed.
WHITE_SPACE = " \t\r\n\f\v"

# Bounds the time for any input. A longer e-mail address could only consist mostly of characters that UTS 46 drops
# (see email.py), and a longer phone number of separators.
MAX_CHARACTERS = 1024
