"""Freed memory is given back once many connections have closed."""

from stoplist.server.freed_memory import FreedMemory


def test_memory_is_given_back_when_many_connections_have_closed() -> None:
    """Once, until as many have closed again; a few are not worth it."""
    given_back = []
    memory = FreedMemory(lambda: given_back.append(1))
    for connections, times in (
        (5000, 0),
        (4500, 0),
        (4000, 1),
        (3500, 1),
        (3600, 1),
        (2600, 2),
        (0, 3),
        (999, 3),
        (0, 3),
    ):
        memory.note(connections)
        assert len(given_back) == times


def test_giving_back_works_here() -> None:
    """Or does nothing, where the C library cannot."""
    memory = FreedMemory()
    memory.note(1000)
    memory.note(0)
