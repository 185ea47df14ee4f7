"""The pages on propagation: which key has which changes, and which keys must follow a feed or have stopped."""
