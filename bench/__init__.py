"""The benchmark of `make bench`: the real server against bare applications on the same uvicorn, in one run."""
