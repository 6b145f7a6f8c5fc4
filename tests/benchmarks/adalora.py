"""AdaLoRA beside LoRA of a fixed rank: what 40 % fewer parameters cost of the loss that training takes off held-out rows.

SmolLM2 learns docstrings from signatures; the same rows in the same order, and for each method the learning rate that
suits it best of 5e-4, 1e-3, 2e-3 and 4e-3. `--seeds` begin both anew. Cost: some five minutes a seed on two cores.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks._figure import sample_file, sample_model, show
from tests.training.runs import run_local

from cairn.adapters.files import read_lora
from cairn.config.load import build
from cairn.config.recipe import Recipe
from cairn.training.folder import ADAPTER
from cairn.training.local import process_group

LORA = {"name": "lora", "rank": 10}
ADALORA = {"name": "adalora", "rank": 6, "initial_rank": 10}
RATES = {"lora": 1e-3, "adalora": 2e-3}


def main() -> None:
    """Print both figures."""
    arguments = _arguments()
    rates = RATES | {name: arguments.rate for name in RATES if arguments.rate}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in RATES}
    with tempfile.TemporaryDirectory() as place, process_group(Path(place) / "group"):
        untrained = _measure(_recipe(Path(place) / "base", LORA, rate=1e-12, seed=1, steps=1))[1]
        for seed in range(1, arguments.seeds + 1):
            for adapter in (LORA, ADALORA):
                name = str(adapter["name"])
                if name in arguments.only:
                    recipe = _recipe(
                        Path(place) / f"{name}-{seed}", adapter, rate=rates[name], seed=seed, steps=arguments.steps
                    )
                    size, loss = _measure(recipe)
                    found[name].append((size, untrained - loss))
                    print(
                        f"# {name}, seed {seed}: {size:.0f} parameters, {untrained:.4f} → {loss:.4f} nats", flush=True
                    )
    if all(found.values()):
        _show(found["adalora"], found["lora"])


def _show(adalora: list[tuple[float, float]], lora: list[tuple[float, float]]) -> None:
    """Parameters as how many of them LoRA has for each, so that more is better."""
    against = f"LoRA of rank {LORA['rank']}"
    ours, other = ([1 / size for size, _ in found] for found in (adalora, lora))
    show("adalora_smallness", "1 / parameters", ours, other, against=against, goal=1 / 0.6)
    ours, other = ([fall for _, fall in found] for found in (adalora, lora))
    show("adalora_loss_decrease", "nats", ours, other, against=against, goal=0.98)


def _measure(recipe: Recipe) -> tuple[float, float]:
    """Parameters of the adapter that a run leaves, and the held-out loss with it."""
    last = run_local(recipe)[-1]
    layers = read_lora(recipe.run_path / ADAPTER).layers.values()
    return float(sum(a.numel() + b.numel() for a, b in layers)), last["held_out_loss"]


def _recipe(folder: Path, adapter: dict[str, Any], *, rate: float, seed: int, steps: int) -> Recipe:
    folder.mkdir()
    return build(
        {
            "model": {"path": str(sample_model())},
            "data": {
                "train": [str(sample_file("alpaca.json"))],
                "sequence_length": 256,
                "limit": 1200,
                "hold_out": 80,
            },
            "stage": {"name": "sft"},
            "adapter": adapter,
            "optimizer": {"name": "adamw", "learning_rate": rate},
            "schedule": {"name": "cosine", "warmup_steps": 5},
            "training": {
                "steps": steps,
                "global_batch": 2,
                "micro_batch": 2,
                "precision": "fp32",
                "seed": seed,
                "evaluate_documents": 80,
            },
            "storage": {"path": str(folder / "storage"), "run": "run"},
        }
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", nargs="+", default=list(RATES), choices=list(RATES))
    parser.add_argument("--rate", type=float, help="of the runs; none: the best of each")
    return parser.parse_args()


if __name__ == "__main__":
    main()
