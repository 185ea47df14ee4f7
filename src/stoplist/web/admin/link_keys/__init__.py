"""The screens of link keys, and of the page behind their links."""
