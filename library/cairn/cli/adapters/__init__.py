"""`cairn adapters`: one verb a file."""
