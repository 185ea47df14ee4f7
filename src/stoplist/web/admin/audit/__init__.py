"""The pages of the audit."""
