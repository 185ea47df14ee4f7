"""The parts of the description of the interface: shapes, refusals, examples, lines to copy, and words."""
