"""Bits per byte."""
