"""What a run is after: a figure of its log, and when to give up on it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cairn.config.section import Section


class Goal(Section):
    """A figure of the run, as it stands in `metrics.jsonl`, and which way is better."""

    metric: str = Field("held_out_bpb", description="name of the figure")
    mode: Literal["min", "max"] = Field("min", description="whether less or more is better")


class EarlyStopping(Goal):
    """The run ends, finished, when a figure no longer improves. Steps without the figure do not count."""

    patience: int = Field(3, gt=0, description="readings without improvement after which the run ends")
    min_delta: float = Field(0.0, ge=0, description="a reading improves when it is better by more than this")
