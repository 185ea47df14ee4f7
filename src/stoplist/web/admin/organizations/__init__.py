"""Pages of organizations, their groups and their people."""
