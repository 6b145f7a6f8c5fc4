"""A section of a recipe: frozen, typed strictly, unknown keys refused."""

from __future__ import annotations

import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every configuration object, the plugins' Configs included."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        """Validate plain data as JSON would be: a list may fill a tuple, a string never fills a number.

        Raises pydantic's ValidationError with all problems at once.
        """
        return cls.model_validate_json(json.dumps(values))
