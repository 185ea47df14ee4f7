"""Paths of the account pages."""

ACCOUNT_PATH = "/settings/account"
