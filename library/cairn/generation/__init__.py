"""The serving engine below HTTP and Ray: continuous batching, adapter slots, scoring."""
