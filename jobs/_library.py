"""Makes `import cairn` find `library/` beside this folder, so that a cluster needs the dependencies and not Cairn.

Ray uploads the working directory, not an installation; the workers get the package through `cairn.cluster.session`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "library"))
