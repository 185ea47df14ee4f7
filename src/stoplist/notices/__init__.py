"""Notices to the operator of what cannot wait, kept until a webhook or an e-mail has delivered them."""
