"""Where a model lies: a directory, a GGUF file, or a hub name that becomes a directory of the hub's cache.

A path is never taken for a hub name: `./missing` fails here and now instead of going online.
"""

from __future__ import annotations

import re
from pathlib import Path

from cairn.errors import ModelError

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
HUB_TIMEOUT_S = 10
FETCH_SAMPLE = "run `cairn sample` and use $CAIRN_HOME/models/SmolLM2-135M-Instruct, or give another directory"


def locate(path: str | Path, *, revision: str | None = None, trust_remote_code: bool = False) -> Path:
    """The local directory or GGUF file of the model called `path`; fetches a hub model into the hub's cache.

    Raises ModelError where there is none.
    """
    found = Path(path).expanduser()
    if found.is_dir():
        return found
    if found.is_file():
        if found.suffix.lower() == ".gguf":
            return found
        raise ModelError("a file that is no GGUF", where=str(path), next_step="give the directory that it lies in")
    if found.suffix.lower() == ".gguf" or not HUB_NAME.fullmatch(str(path)):
        raise ModelError("there is no such model directory or GGUF file", where=str(path), next_step=FETCH_SAMPLE)
    patterns = HUB_FILES + (["*.py"] if trust_remote_code else [])
    return from_hub(str(path), revision, patterns, otherwise=FETCH_SAMPLE)


def from_hub(name: str, revision: str | None, patterns: list[str], *, otherwise: str) -> Path:
    """The files of a hub repository that match `patterns`, in the hub's cache; ModelError, `otherwise` being what to do
    where the hub cannot be reached.
    """
    import httpx
    from huggingface_hub import errors, snapshot_download

    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=patterns, ignore_patterns="original/*", etag_timeout=HUB_TIMEOUT_S
        )
    except errors.GatedRepoError:
        reason, advice = "the hub asks for a licence to be accepted first", "accept it there and set HF_TOKEN"
    except errors.RevisionNotFoundError:
        reason, advice = f"the hub model has no revision '{revision}'", "correct the revision"
    except errors.RepositoryNotFoundError:
        reason, advice = (
            "the hub has no such model, or it is private",
            f"correct the name, set HF_TOKEN, or {otherwise}",
        )
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.HfHubHTTPError, httpx.HTTPError):
        reason, advice = "no directory of this name, and the hub cannot be reached", otherwise
    else:
        return Path(folder)
    raise ModelError(reason, where=name, next_step=advice)
