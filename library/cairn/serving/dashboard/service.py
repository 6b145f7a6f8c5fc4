"""The dashboard as a Ray Serve application: one replica, a tenth of a CPU."""

from __future__ import annotations

from ray import serve
from ray.serve import Application

from cairn.serving.dashboard.app import build_app


class Dashboard:
    """Holds nothing: every answer is read from the files."""


def application(storage: str) -> Application:
    """The Serve application over a storage path that the replica's node can see."""
    served = serve.ingress(build_app(storage))(Dashboard)
    return serve.deployment(name="dashboard", ray_actor_options={"num_cpus": 0.1})(served).bind()
