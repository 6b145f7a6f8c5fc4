"""One file a stage: the record it eats and its loss."""
