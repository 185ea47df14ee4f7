"""The benchmark of `make bench`: the real server against bare applications and bare databases, in one run.

How to add a row: a module of a part (the table in `__main__.py` names them) has one function, which yields its rows:

    def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
        with deployed(database, run.scratch / f"mine-{database.name}") as deployment, deployment.server() as server:
            seen_us = run.in_turn({"ours": lambda: server.cost_us(…), "theirs": lambda: …}, "what this measures")
        ours, theirs = seen_us["ours"], seen_us["theirs"]
        detail = f"{ours:.0f} µs, {theirs:.0f} µs"
        yield verdict(f"my row{deployment.where}", ours / theirs, "x", detail, at_most=1.2)

It is called for SQLite and for PostgreSQL. `deployed` (product.py) makes a deployment with keys. `Run` (rounds.py)
measures everything once in each round: `in_turn` some functions, `loads` many connections, `rounds` anything else. They
return a `Series` (verdict.py) for each name: divided within the rounds, shown by its median. A `verdict` is one row:
title, figures, unit, the medians behind them, and the limit, if there is one.
"""
