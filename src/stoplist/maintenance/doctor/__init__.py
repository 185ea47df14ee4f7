"""Whether an installation is set up as it should be; a file a group of checks. Source: docs/interface.md section D9."""
