"""The reference of the API: the OpenAPI document, and the page that is made of it alone, so that both say the same."""
