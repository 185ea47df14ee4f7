"""Constants of the whole suite: units, the repository, how long a test waits, a limit that none reaches."""

from pathlib import Path

ROOT = Path(__file__).parents[1]

# Longer than anything that a test waits for takes, even on a busy machine: only a broken program meets it.
PATIENCE_S = 180.0
# Requests per minute.
HIGH_LIMIT = 1_000_000

SECOND_NS = 1_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
HOUR_S, DAY_S = 3_600, 86_400
MIB = 1 << 20
