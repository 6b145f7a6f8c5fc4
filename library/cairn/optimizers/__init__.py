"""One file an optimizer."""
