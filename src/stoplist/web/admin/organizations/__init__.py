"""The pages of organizations, their groups and their people."""
