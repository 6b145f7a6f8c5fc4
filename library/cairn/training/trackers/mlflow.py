"""MLflow, a server or a folder; a restarted run goes on as the same one.

Without a server the runs lie under `mlflow/` of the storage path, in MLflow's file store: MLflow maintains it but asks
for an opt-in (MLFLOW_ALLOW_FILE_STORE), which is given here for a `file:` address only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from cairn.config.section import Section
from cairn.training.trackers._service import ServiceTracker

MOST_OF_A_PARAMETER = 500
"""Characters that a server takes for certain."""


class Mlflow(ServiceTracker):
    """Numbers as metrics, texts as artifacts, the recipe's keys as parameters."""

    class Config(Section):
        """Where the run appears."""

        experiment: str = Field("cairn", description="experiment of the run, made where it is missing")
        uri: str | None = Field(
            None, description="a server, or file:FOLDER; none: MLFLOW_TRACKING_URI, else mlflow/ of storage.path"
        )

    def connect(self, run: Any, known: str | None) -> str:
        """Raises MLflow's own errors, such as a server that does not answer."""
        uri = self.config.uri or os.environ.get("MLFLOW_TRACKING_URI")
        uri = uri or (Path(run.recipe.storage.path) / "mlflow").resolve().as_uri()
        if uri.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(uri)
        name = known or self._begin(run)
        self._client.update_run(name, status="RUNNING")
        return name

    def send(self, step: int, values: Mapping[str, float]) -> None:
        """In one request."""
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        self._client.log_batch(self._id, metrics=[Metric(key, value, now_ms, step) for key, value in values.items()])

    def send_text(self, step: int, name: str, text: str) -> None:
        """A file of its own."""
        self._client.log_text(self._id, text, f"{name}/step_{step:08d}.txt")

    def close(self) -> None:
        """Mark the run as ended."""
        self._client.set_terminated(self._id)

    def _begin(self, run: Any) -> str:
        from mlflow.entities import Param

        found = self._client.get_experiment_by_name(self.config.experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self.config.experiment)
        begun: str = self._client.create_run(experiment, run_name=run.recipe.run_name).info.run_id
        for section, keys in run.recipe.plain().items():
            named = {f"{section}.{key}": value for key, value in keys.items()} if isinstance(keys, dict) else {}
            parameters = [Param(key, str(value)[:MOST_OF_A_PARAMETER]) for key, value in named.items()]
            self._client.log_batch(begun, params=parameters)
        return begun
