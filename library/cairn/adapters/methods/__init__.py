"""One file a PEFT method."""
