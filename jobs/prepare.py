"""Token shards from a recipe's files, by Ray Data over the whole cluster.

    ray job submit --working-dir . -- python jobs/prepare.py jobs/recipes/quickstart.yaml [key=value …]

The steps: library/cairn/cli/prepare.py → cairn.data.pipeline.prepare.
"""

import sys

import _library  # noqa: F401 - before cairn
from cairn.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["prepare", *sys.argv[1:]]))
