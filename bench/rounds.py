"""The rounds: every server at every kind of work, one after the other, again and again in one run."""

from collections.abc import Callable, Iterable

import msgspec

from bench import load
from bench.load import Load, Script
from bench.server import BenchError, Server

Figures = dict[tuple[str, str], list[Load]]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long each piece of work is done."""

    rounds: int
    duration_s: float
    warm_up_s: float


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One server at one kind of work: what is done once in each round."""

    work: str
    subject: str
    server: Server
    connections: int
    script: Callable[[int], Script]


def run(pieces: Iterable[Piece], pace: Pace, *, say: Callable[[str], None], after_round: Callable[[], None]) -> Figures:
    """The figures of all rounds by (work, subject). Raises BenchError where nothing is answered right."""
    pieces = tuple(pieces)
    figures: Figures = {(piece.work, piece.subject): [] for piece in pieces}
    # A server's first ten thousand answers take up to twice as long as later ones: round 0 does not count.
    for number in range(pace.rounds + 1):
        for piece in pieces:
            seen = _measure(piece, pace)
            if number:
                figures[piece.work, piece.subject].append(seen)
            say(f"round {number}/{pace.rounds}  {piece.work:20} {piece.subject:20} {seen.rate:8.0f}/s")
        after_round()
    return figures


def _measure(piece: Piece, pace: Pace) -> Load:
    seen = load.run(
        [piece.script(number) for number in range(piece.connections)],
        port=piece.server.port,
        ca=piece.server.ca,
        warm_up_s=pace.warm_up_s,
        duration_s=pace.duration_s,
        server_cpu_s=piece.server.cpu_s,
    )
    if seen.requests <= seen.failures:
        raise BenchError(f"{piece.subject} failed at {piece.work}: {seen.first_failure or 'no answer at all'}")
    return seen
