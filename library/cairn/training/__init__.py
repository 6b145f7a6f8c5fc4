"""The loop, the engine, checkpoints, and the Ray trainer."""
