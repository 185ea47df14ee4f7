"""The page behind an opt-out link, and one-click opt-outs (RFC 8058)."""
