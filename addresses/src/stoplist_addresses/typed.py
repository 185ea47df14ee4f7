"""What is true of every address as it is typed, whatever its channel."""

# Other white space, no-break spaces among it, is never trimmed.
WHITE_SPACE = " \t\r\n\f\v"

# So that no input, however long, keeps anybody waiting. Beyond it an e-mail address could only be full of characters
# that UTS 46 drops (email.py says why), and a phone number of separators.
MOST_CHARACTERS = 1024
