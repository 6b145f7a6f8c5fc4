"""Text to rows: sources, formats, encoding, packing, token shards, the cursor."""
