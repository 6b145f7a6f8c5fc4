"""Base models: loading, identity, where the linears are, packed attention."""
