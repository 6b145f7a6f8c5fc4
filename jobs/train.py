"""Train by a recipe on the cluster's workers; run again under the same name, it goes on where it stopped.

    ray job submit --working-dir . -- python jobs/train.py jobs/recipes/quickstart.yaml [key=value …]

The steps: library/cairn/cli/train.py → cairn.data.pipeline.prepare → cairn.training.trainer.train → the store.
"""

import sys

import _library  # noqa: F401 - before cairn
from cairn.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["train", *sys.argv[1:]]))
