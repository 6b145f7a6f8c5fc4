"""Losses as pure functions of tensors: sums and weights, never means."""
