"""What `make bench` runs: the real server against bare applications on the same uvicorn, in one run."""
