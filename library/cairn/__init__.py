"""Cairn: text → tokens → stage trainer → adapter → store → HTTP answer → bits per byte, on Ray."""
