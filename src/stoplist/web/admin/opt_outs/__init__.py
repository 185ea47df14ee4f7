"""The pages of opt-outs: overview, feeds, records, submissions, entry by hand."""
