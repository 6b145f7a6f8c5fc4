"""What differs for a model family from the rule derived from its architecture."""
