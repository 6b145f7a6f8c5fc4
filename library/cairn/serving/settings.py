"""What the services may be told: the `args` of their applications in `services/serve.yaml`.

The defaults serve the model and the storage under the data home, so a fresh clone works after `cairn sample`.
`~` and `$CAIRN_HOME` are expanded where the application is built, on the cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from cairn.config.explain import explain
from cairn.config.home import expand
from cairn.config.model import Kind, Quantization
from cairn.config.recipe import Positive
from cairn.config.section import Section
from cairn.errors import RecipeError

DEFAULT_MODEL = "$CAIRN_HOME/models/SmolLM2-135M-Instruct"
DEFAULT_STORAGE = "$CAIRN_HOME/storage"


class ServiceSettings(Section):
    """What every service that holds a model needs."""

    model: str = Field(DEFAULT_MODEL, description="a directory, a hub name, or a GGUF file")
    name: str | None = Field(None, description="the base's name in requests; none: the last part of its path")
    revision: str | None = Field(None, description="branch, tag or commit of a hub model")
    attention: str = Field("auto", description="attention implementation")
    trust_remote_code: bool = Field(False, description="run Python code that ships with the model")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="dtype of weights and activations")
    quantization: Kind | None = Field(None, description="keep the linears in few bits; adapters stay in `precision`")
    storage: str = Field(DEFAULT_STORAGE, description="the storage.path of the recipes, with the adapter store")
    adapter_slots: Positive = Field(8, description="adapters resident at once")
    max_rank: Positive = Field(64, description="the largest LoRA rank accepted")
    replicas: Positive = Field(1, description="copies of the model")
    cpus_per_replica: float = Field(1.0, gt=0, description="CPUs reserved for a replica")
    gpus_per_replica: float = Field(0.0, ge=0, description="GPUs reserved for a replica; 0 computes on the CPU")
    threads: Positive | None = Field(None, description="compute threads of a replica; none: its CPUs")
    api_key: str | None = Field(None, description="a key that requests must bring; none: CAIRN_API_KEY, else open")

    @classmethod
    def read(cls, args: dict[str, Any]) -> Self:
        """The settings of an application's `args`, paths expanded; RecipeError with all problems at once."""
        try:
            settings = cls.parse(dict(args))
        except ValidationError as error:
            raise RecipeError(list(explain(error, cls, prefix="args")), where=cls.__name__) from None
        expanded: dict[str, Any] = {
            key: expand(value) for key in ("model", "storage") if (value := getattr(settings, key))
        }
        for key in ("adapter_roots", "data_roots"):
            if hasattr(settings, key):
                expanded[key] = tuple(expand(root) for root in getattr(settings, key))
        return settings.model_copy(update=expanded)

    @property
    def base_name(self) -> str:
        """The name of the base in requests."""
        return self.name or Path(self.model).name

    @property
    def quantized(self) -> Quantization | None:
        """How the base is held."""
        return Quantization.parse({"kind": self.quantization}) if self.quantization is not None else None

    @property
    def device(self) -> str:
        """Where the model computes."""
        return "cuda" if self.gpus_per_replica else "cpu"

    @property
    def actor_options(self) -> dict[str, float]:
        """What a replica reserves in the cluster."""
        return {"num_cpus": self.cpus_per_replica, "num_gpus": self.gpus_per_replica}


class InferenceSettings(ServiceSettings):
    """`services/inference.py`."""

    adapter_roots: tuple[str, ...] = Field(
        ("$CAIRN_HOME",), description="folders under which adapters may be loaded by path"
    )
    router: str | None = Field(
        None, description="the published router that answers to 'auto': name, name@3 or name@alias; none: 404"
    )
    max_running: Positive = Field(16, description="requests decoded at once by a replica; others wait")
    max_length: Positive | None = Field(None, description="window in tokens; none: the model's, at most 2048")
    prefill_tokens: Positive = Field(256, description="prompt tokens read in one step; bounds the delay of others")


class EvaluationSettings(ServiceSettings):
    """`services/evaluation.py`."""

    data_roots: tuple[str, ...] = Field(
        ("$CAIRN_HOME/sample",), description="folders whose files may be scored by path"
    )
    window: Positive = Field(1024, description="default scoring window in tokens")
    max_text_bytes: Positive = Field(4_000_000, description="text in one request at most")
    max_documents: Positive = Field(10_000, description="documents of a request at most")
