"""Pages of opt-outs: overview, feeds, records, submissions, manual entry."""
