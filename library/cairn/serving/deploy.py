"""Services on a Ray cluster: what `cairn serve` calls, and what the applications in `services/` are built by.

Bound to localhost unless told otherwise. Ray must be connected; Serve is started here, and `stop` ends it.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from dataclasses import dataclass
from typing import Any

import ray
from ray import serve
from ray.serve import Application, Deployment

from cairn.errors import UserError
from cairn.serving.evaluation import Evaluation
from cairn.serving.gateway import Gateway
from cairn.serving.replica import Replica
from cairn.serving.settings import EvaluationSettings, InferenceSettings

EVALUATION_PREFIX = "/v1/bits-per-byte"
DASHBOARD_PREFIX = "/dashboard"
REQUEST_TIMEOUT_S = 600.0
SHUTDOWN_TIMEOUT_S = 30.0
MOST_ONGOING = 1000
"""Requests that Serve lets into a replica at once; the engine queues, Serve's own default of 5 would starve it."""


@dataclass(frozen=True)
class Serving:
    """Where the applications answer."""

    url: str
    applications: dict[str, str]

    def stop(self) -> None:
        """End Serve and all its applications."""
        _end_controller()
        serve.shutdown()


def inference_application(settings: InferenceSettings) -> Application:
    """Gateway and replicas."""
    replica = _deployed(Replica, "Replica", settings.actor_options, replicas=settings.replicas)
    return gateway_application(replica.bind(settings), key=settings.api_key, base_name=settings.base_name)


def gateway_application(replica: Any, *, key: str | None, base_name: str) -> Application:
    """A gateway before replicas: their application, or the handle of one that runs."""
    return _deployed(Gateway, "Gateway", {"num_cpus": 0}).bind(replica, key, base_name)


def evaluation_application(settings: EvaluationSettings) -> Application:
    """Replicas that score."""
    return _deployed(Evaluation, "Evaluation", settings.actor_options, replicas=settings.replicas).bind(settings)


def serve_applications(
    inference: InferenceSettings | None = None,
    *,
    evaluation: EvaluationSettings | None = None,
    dashboard_storage: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
) -> Serving:
    """Start the wanted applications and wait until they answer; returns without blocking.

    UserError when nothing is wanted or the port is taken; what an application cannot start with (a wrong model path)
    is raised by Serve as RuntimeError after it has been printed.
    """
    wanted: dict[str, tuple[Application, str]] = {}
    if inference is not None:
        wanted["inference"] = (inference_application(inference), "/")
    if evaluation is not None:
        wanted["evaluation"] = (evaluation_application(evaluation), EVALUATION_PREFIX)
    if dashboard_storage is not None:
        from cairn.serving.dashboard.service import application

        wanted["dashboard"] = (application(dashboard_storage), DASHBOARD_PREFIX)
    if not wanted:
        raise UserError("there is nothing to serve", next_step="name a model, an evaluation or a dashboard")
    require_free_port(host, port)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    options: dict[str, Any] = {"host": host, "port": port, "request_timeout_s": REQUEST_TIMEOUT_S}
    serve.start(proxy_location="HeadOnly", http_options=options)
    serve.run_many(
        [serve.RunTarget(target, name=name, route_prefix=prefix) for name, (target, prefix) in wanted.items()]
    )
    url = f"http://{host}:{port}"
    return Serving(url, {name: f"{url}{'' if prefix == '/' else prefix}" for name, (_, prefix) in wanted.items()})


def _end_controller() -> None:
    """Let Serve's controller end before `serve.shutdown` asks it to: that waits inside the controller until it dies,
    and Ray then tells the user that a task failed and will be retried (ray/serve/_private/controller.py)."""
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    until = time.monotonic() + SHUTDOWN_TIMEOUT_S
    with contextlib.suppress(ValueError, ray.exceptions.RayActorError):  # no such actor any more, or it ended meanwhile
        controller = ray.get_actor(SERVE_CONTROLLER_NAME, SERVE_NAMESPACE)
        ray.get(controller.graceful_shutdown.remote(wait=False))
        while time.monotonic() < until:
            ray.get_actor(SERVE_CONTROLLER_NAME, SERVE_NAMESPACE)
            time.sleep(0.1)


def _deployed(actor: type, name: str, options: dict[str, Any], *, replicas: int = 1) -> Deployment:
    deployment: Deployment = serve.deployment(
        name=name, num_replicas=replicas, max_ongoing_requests=MOST_ONGOING, ray_actor_options=options
    )(actor)
    return deployment


def require_free_port(host: str, port: int) -> None:
    """UserError when `host`:`port` cannot be bound, before any actor starts."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(
                f"port {port} on {host} cannot be used ({error.strerror})",
                where="port",
                next_step="choose another port, or end what listens there",
            ) from None
