"""Speed measurements: `make bench`."""
