"""Waits until a cluster has as many nodes as the argument says, and prints their addresses."""

from __future__ import annotations

import sys
import time

import ray

WAIT_S = 60

if __name__ == "__main__":
    ray.init(log_to_driver=False)
    end = time.monotonic() + WAIT_S
    while len(alive := [node for node in ray.nodes() if node["Alive"]]) < int(sys.argv[1]):
        if time.monotonic() > end:
            sys.exit(f"only {len(alive)} nodes after {WAIT_S} s")
        time.sleep(0.5)
    print("nodes:", *sorted(node["NodeManagerAddress"] for node in alive))
