"""Faster layers with equal results."""
