"""FourierFT (Gao et al. 2024, arXiv 2405.03003): ΔW is the inverse Fourier transform of a few trained coefficients at
places drawn at random. PEFT begins with random coefficients unless told otherwise; here they begin at zero."""

from __future__ import annotations

from typing import Any, ClassVar

from cairn.adapters.methods._coefficients import Coefficients


class Fourierft(Coefficients):
    """A few frequencies of the update."""

    fixed: ClassVar[dict[str, Any]] = {"init_weights": True}
