"""The Generator on HTTP and on many replicas."""
