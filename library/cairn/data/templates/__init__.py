"""Chat templates for base models without one, one file each; the stem is the name in `data.template`."""
