"""One page over a storage path: runs, searches, adapters."""
