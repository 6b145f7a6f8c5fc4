"""The dashboard: runs, searches and adapters of a storage path, as one page.

`serve run services.dashboard:build storage=/data/cairn`, or an application of `services/serve.yaml`.
Serve fills `Arguments` from the annotation of `build`, which therefore must not be a string.
"""

from pydantic import BaseModel, ConfigDict, Field
from ray.serve import Application

from cairn.config.home import default_storage
from cairn.serving.dashboard.service import application


class Arguments(BaseModel):
    """`args` of the application in `services/serve.yaml`."""

    model_config = ConfigDict(extra="forbid")
    storage: str = Field(default_factory=default_storage, description="the storage.path of the recipes")


def build(args: Arguments) -> Application:
    """The application, built by Serve."""
    return application(args.storage)
