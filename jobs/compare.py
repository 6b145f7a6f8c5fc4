"""Rank finished runs of one base model by one yardstick: held-out pairs, KL to the base, bits per byte, cost.

    ray job submit --working-dir . -- python jobs/compare.py RUN… --storage PATH --output DIR

The steps: library/cairn/cli/compare.py → cairn.comparison.compare.
"""

import sys

import _library  # noqa: F401 - before cairn
from cairn.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["compare", *sys.argv[1:]]))
