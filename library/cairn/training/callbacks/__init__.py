"""One file a callback."""
