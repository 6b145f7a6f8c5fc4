"""Pages as one document each: style and scripts are put in where a page names them, so it works without a server."""

from __future__ import annotations

import re
from importlib import resources

PART = re.compile(r"/\* (\w+\.(?:css|js)) \*/")


def assembled(name: str) -> str:
    """The page `name` of this folder with its parts inside."""
    folder = resources.files("cairn.serving.dashboard")
    text = (folder / name).read_text(encoding="utf-8")
    return PART.sub(lambda part: (folder / part[1]).read_text(encoding="utf-8"), text)
