"""A published adapter as a PEFT directory or a merged model, reloaded and compared.

    ray job submit --working-dir . -- python jobs/export.py REF --to peft --output DIR

The steps: library/cairn/cli/export.py → the plugin of library/cairn/exports/ → a reload check.
"""

import sys

import _library  # noqa: F401 - before cairn
from cairn.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["export", *sys.argv[1:]]))
