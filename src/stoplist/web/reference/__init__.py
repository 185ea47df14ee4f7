"""The reference of the API: the OpenAPI document, and a page generated from that document alone."""
