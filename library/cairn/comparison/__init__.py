"""Finished runs of any stages, measured by one yardstick."""
