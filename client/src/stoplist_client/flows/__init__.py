"""The operations of both clients as flows: generators that yield the effects they need, and do no network I/O."""
