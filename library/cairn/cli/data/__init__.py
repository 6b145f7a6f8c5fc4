"""`cairn data`: one verb a file."""
