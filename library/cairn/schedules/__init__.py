"""One file a learning-rate schedule."""
