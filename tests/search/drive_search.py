"""Run as a script: `drive_search.py RECIPE` searches on a private cluster and prints the table as JSON."""

from __future__ import annotations

import json
import sys

from cairn.cluster.session import connected
from cairn.config.load import load
from cairn.search.tune import search

if __name__ == "__main__":
    with connected(2):
        print(json.dumps(list(search(load(sys.argv[1])).table)))
