"""Errors as HTTP answers, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.

A refusal crosses from the replica to the gateway as data, so that no status depends on how an exception pickles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cairn.errors import AdapterError, CairnError, UserError

INVALID = "invalid_request_error"


@dataclass(frozen=True)
class Refusal:
    """A status and what the error object says."""

    status: int
    message: str
    kind: str = INVALID
    param: str | None = None
    code: str | None = None

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


class RefusedError(Exception):
    """Carries a refusal to the exception handler of the application."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class UnknownModelError(AdapterError):
    """A `model` that names nothing here."""


class ForbiddenPathError(UserError):
    """A path outside the folders that a service may read."""


def bad_request(message: str, *, param: str | None = None) -> RefusedError:
    """A 400."""
    return RefusedError(Refusal(400, message, param=param))


def refusal_of(error: CairnError) -> Refusal:
    """The HTTP answer for an error of Cairn: the user's own are 4xx, ours 500."""
    message = error.what if not error.next_step else f"{error.what} ({error.next_step})"
    if isinstance(error, UnknownModelError):
        return Refusal(404, message, param="model", code="model_not_found")
    if isinstance(error, ForbiddenPathError):
        return Refusal(403, message, kind="permission_error", param=error.where or None)
    if isinstance(error, AdapterError):
        return Refusal(400, message, param=error.where or None, code="adapter_refused")
    if isinstance(error, UserError):
        return Refusal(400, message, param=error.where or None)
    return Refusal(500, message, kind="server_error")
