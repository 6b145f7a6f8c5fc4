"""Where one report lies between training and trial. A process of its own, so it imports nothing heavy."""

from __future__ import annotations

import asyncio
from typing import Any

Report = tuple[dict[str, Any], str]
"""Metrics and the checkpoint's folder."""


class Mailbox:
    """One report lies here until it has been taken and acknowledged."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[Report] = asyncio.Queue(1)
        self.taken: asyncio.Queue[bool] = asyncio.Queue(1)

    async def give(self, report: Report) -> None:
        """Returns when the report was acknowledged."""
        await self.given.put(report)
        await self.taken.get()

    async def take(self, timeout_s: float) -> Report | None:
        """The next report, None when none comes in time."""
        try:
            return await asyncio.wait_for(self.given.get(), timeout_s)
        except TimeoutError:
            return None

    async def acknowledge(self) -> None:
        """Lets the giver go on."""
        await self.taken.put(True)
