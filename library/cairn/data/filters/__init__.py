"""One file a filter."""
