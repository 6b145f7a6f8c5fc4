"""The recipe: its sections, how it is read, overridden, checked and fingerprinted."""
