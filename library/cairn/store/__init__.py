"""Published adapters: versions that never change, aliases that move."""
