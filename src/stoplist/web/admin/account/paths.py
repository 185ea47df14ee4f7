"""Where the pages of one's own account are."""

ACCOUNT_PATH = "/settings/account"
