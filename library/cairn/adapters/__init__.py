"""Adapters: methods, files, checks."""
