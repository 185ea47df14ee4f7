"""The six operations over HTTP: `GET` and `POST` on each channel."""
