"""Who may ask, and which files a request may name. Serve's own proxy checks nothing."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from cairn.serving.refusal import ForbiddenPathError, Refusal, RefusedError

API_KEY_VARIABLE = "CAIRN_API_KEY"


def api_key(configured: str | None) -> str | None:
    """The key in force: the settings', else the environment's."""
    return configured or os.environ.get(API_KEY_VARIABLE) or None


def check_key(header: str | None, key: str | None) -> None:
    """401 unless the Authorization header brings `key`; nothing to check when there is none."""
    if key is None:
        return
    given = (header or "").removeprefix("Bearer ").strip()
    if not hmac.compare_digest(given.encode(), key.encode()):
        what = "the API key is wrong" if given else "an API key is needed: send it as 'Authorization: Bearer KEY'"
        raise RefusedError(Refusal(401, what, code="invalid_api_key"))


def contained(path: str, roots: Iterable[str], *, where: str) -> Path:
    """The real path when it lies under one of `roots`, links followed; ForbiddenPathError otherwise."""
    real = Path(path).expanduser().resolve()
    if not any(real.is_relative_to(Path(root).resolve()) for root in roots):
        raise ForbiddenPathError(
            f"{path!r} lies outside the folders that this service may read",
            where=where,
            next_step="move it there, or widen the roots in the service's settings",
        )
    return real
