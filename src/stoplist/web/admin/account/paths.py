"""Paths of the account pages."""

ACCOUNT_PATH = "/settings/account"
TWO_STEP_PATH = f"{ACCOUNT_PATH}/two-step"
SIGN_OUT_PATH = "/settings/sign-out"
