"""ASHA's memory and rule (Li et al. 2018, arXiv:1810.05934), without Ray: rungs of reports, and who was stopped where.

Rungs stand at grace, grace · reduction, grace · reduction², … reports. A trial that reaches a rung is stopped when its
value is worse than the best 1 / reduction of those that came there before it. Ray Tune's own scheduler has the same
rule, but Tune does not save a scheduler's state: after a killed driver its rungs would be empty. This one writes every
decision down before it takes effect.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cairn.store.durable import replace_file

LADDER_FILE = "ladder.json"


class Ladder:
    """Decisions for one search, kept in `folder`. `sign` is 1 where less is better, −1 where more is."""

    def __init__(self, folder: Path, *, grace: int, reduction: int, sign: float) -> None:
        self.path = folder / LADDER_FILE
        self.grace, self.reduction, self.sign = grace, reduction, sign
        kept = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}
        self.stopped: list[str] = kept.get("stopped", [])
        self.rungs: dict[int, dict[str, float]] = {int(rung): seen for rung, seen in kept.get("rungs", {}).items()}

    def stops(self, name: str, reports: int, value: float, *, finished: bool = False) -> bool:
        """Whether trial `name` ends here, after `reports` reports, the last of them `value`.

        One that has `finished` is compared with by others but not stopped any more.
        """
        rung = self._rung(reports)
        seen = self.rungs.setdefault(rung, {}) if rung else {name: value}
        if name not in seen:
            if seen and not finished and self.sign * value > self._cutoff(list(seen.values())):
                self.stopped.append(name)
            seen[name] = value
            replace_file(self.path, json.dumps({"stopped": self.stopped, "rungs": self.rungs}, indent=1))
        return name in self.stopped

    def _rung(self, reports: int) -> int:
        """The highest rung at or below `reports`, 0 below the first."""
        rung = self.grace
        if reports < rung:
            return 0
        while rung * self.reduction <= reports:
            rung *= self.reduction
        return rung

    def _cutoff(self, values: list[float]) -> float:
        """The worst that is still among the best 1 / reduction, linear between ranks as in Tune."""
        return float(np.percentile(self.sign * np.asarray(values), 100 / self.reduction))
