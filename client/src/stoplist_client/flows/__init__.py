"""The operations of both clients as flows: generators that say what they want done, and do no I/O over the network."""
