"""Search over the keys of a recipe: random samples, ASHA, every trial an ordinary training.

    ray job submit --working-dir . -- python jobs/search.py jobs/recipes/search.yaml [key=value …]

The steps: library/cairn/cli/search.py → cairn.search.tune.search.
"""

import sys

import _library  # noqa: F401 - before cairn
from cairn.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["search", *sys.argv[1:]]))
