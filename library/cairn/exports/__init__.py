"""One file an export."""
