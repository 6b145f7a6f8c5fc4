"""`cairn adapters convert`: an adapter of another method becomes a LoRA of the same answers, or is refused with its error."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cairn.adapters.attach import attach_saved
from cairn.cli.main import run
from cairn.models.identity import base_sha256
from cairn.models.load import load_model
from cairn.plugins import METHODS
from cairn.store.card import Base, Facts
from cairn.store.store import Store

pytestmark = pytest.mark.slow

TOKENS = torch.arange(20)[None]


def published(storage: Path, base: Path, draft: Path) -> Store:
    """An OFT whose rotations are no longer the identity."""
    method = METHODS.load("oft")
    oft = method(method.Config(block_size=16))
    model = oft.attach(load_model(base, precision="fp32"))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "oft_" in name:
                parameter.add_(0.05 * torch.randn_like(parameter))
    oft.save(model, draft)
    store = Store(storage / "adapters")
    store.publish("rotated", draft, Facts(base=Base(path=str(base), sha256=base_sha256(str(base))), method="oft"))
    return store


def test_all_of_it_or_as_much_as_is_asked_for(
    tmp_path: Path, tiny_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = tmp_path / "storage"
    store = published(storage, tiny_path, tmp_path / "draft")
    place = ["--storage", str(storage)]
    assert run(["adapters", "convert", "rotated", "--publish", "plain", *place]) == 0
    assert "plain@1: convert rotated@1 --to lora, the method was oft" in capsys.readouterr().out
    version = store.resolve("plain")
    assert (version.card.method, version.card.parents) == ("lora", ("rotated@1",))
    with torch.no_grad():
        logits = [
            attach_saved(load_model(tiny_path, precision="fp32"), store.resolve(name).path)(input_ids=TOKENS).logits
            for name in ("rotated", "plain")
        ]
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-4)

    assert run(["adapters", "convert", "rotated", "--publish", "small", "--rank", "2", *place]) == 2
    said = capsys.readouterr().err
    assert "as a LoRA of rank 2 it is 0." in said
    assert "small" not in store.names()
    assert run(["adapters", "convert", "rotated", "--publish", "small", "--rank", "2", "--bound", "1", *place]) == 0
    error = store.resolve("small").card.metrics["relative_error"]
    assert error is not None
    assert 0.05 < error < 1
    assert run(["adapters", "convert", "rotated", "--publish", "other", "--to", "ia3", *place]) == 2
