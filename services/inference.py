"""The inference service: OpenAI's endpoints over one base model and many adapters.

`serve deploy services/serve.yaml`, or alone: `serve run services.inference:build model=/path/to/model`.
`args` are the fields of `cairn.serving.settings.InferenceSettings`.
"""

from __future__ import annotations

from typing import Any

from ray.serve import Application

from cairn.serving.deploy import inference_application
from cairn.serving.settings import InferenceSettings


def build(args: dict[str, Any]) -> Application:
    """The application, built by Serve on the cluster."""
    return inference_application(InferenceSettings.read(args))
