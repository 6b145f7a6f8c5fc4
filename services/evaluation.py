"""The evaluation service: bits per byte of texts and files under a model or an adapter.

`args` are the fields of `cairn.serving.settings.EvaluationSettings`.
"""

from __future__ import annotations

from typing import Any

from ray.serve import Application

from cairn.serving.deploy import evaluation_application
from cairn.serving.settings import EvaluationSettings


def build(args: dict[str, Any]) -> Application:
    """The application, built by Serve on the cluster."""
    return evaluation_application(EvaluationSettings.read(args))
