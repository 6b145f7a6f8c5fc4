"""Bits per byte of a model, an adapter or a checkpoint, spread over the cluster by Ray Data.

    ray job submit --working-dir . -- python jobs/evaluate.py --model PATH [--adapter REF] --data FILE… --output DIR

The steps: library/cairn/cli/evaluate.py → cairn.cluster.evaluation.evaluate.
"""

import sys

import _library  # noqa: F401 - before cairn
from cairn.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["evaluate", *sys.argv[1:]]))
