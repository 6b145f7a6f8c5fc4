"""How much memory a worker has used at its peak."""

from __future__ import annotations

import resource
import sys

import torch


def peak_memory_bytes(device: torch.device) -> float:
    """Bytes allocated on a GPU at most; on a CPU the process's greatest resident size since it began."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts kilobytes on Linux, bytes on macOS
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
