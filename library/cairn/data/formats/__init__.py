"""One YAML a dataset format."""
