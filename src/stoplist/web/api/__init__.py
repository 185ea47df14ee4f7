"""The six operations of the API over HTTP: `GET` and `POST` for each channel."""
