"""Rate limits: how many requests a client may send per minute."""
