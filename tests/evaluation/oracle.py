"""lm-evaluation-harness as the judge: its own rolling log-likelihood of whole texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def harness_nats(model: Any, tokenizer: Any, texts: Sequence[str], *, window: int, batch_size: int = 1) -> list[float]:
    """−loglikelihood_rolling of each text in nats; no cache, no BOS but the prefix."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    harness = HFLM(
        pretrained=model, tokenizer=tokenizer, max_length=window, batch_size=batch_size, device="cpu", backend="causal"
    )
    assert harness.max_length == window
    requests = [
        Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=index)
        for index, text in enumerate(texts)
    ]
    return [-value for value in harness.loglikelihood_rolling(requests, disable_tqdm=True)]
