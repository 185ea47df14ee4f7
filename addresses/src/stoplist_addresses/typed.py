"""What is true of every address as it is typed, whatever its channel."""

# Other white space, no-break spaces among it, is never trimmed.
WHITE_SPACE = " \t\r\n\f\v"

# So that no input, however long, keeps anybody waiting. Beyond 1016 characters an e-mail address has no canonical form
# anyway (email.py says why), and a phone number has nothing but separators.
MOST_CHARACTERS = 1024
