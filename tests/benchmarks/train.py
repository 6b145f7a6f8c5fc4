"""Training SmolLM2 with LoRA beside LlamaFactory (SFT), TRL (DPO) and a bare PyTorch loop: real tokens or pairs a second.

    python -m tests.benchmarks.train [--only WORD] [--rounds N] [--model DIR] [--threads N] [--steps N]

The same conversations, rank, cutoff and rows a step for both; each trainer in a process of its own, in turns, without
its first step; a ratio is the median over the rounds. LlamaFactory gets an environment of its own under the data home,
made at the first run, and its defaults: eight rows a pass, padded to the longest, and gradient checkpointing; ours are
packed. Lengths vary as conversations' do, log-normal. By the clock, by the CPU's time, and peak memory; half an
hour on two cores.

Measured on one thread of an AMD EPYC 7003 (AVX2, no bf16 products), one round of two steps: SFT in fp32 87 tokens/s
against 31 (2.8), rows of equal length 73 against 51 (1.4), DPO in fp32 2.8 times TRL's pairs with 2.6 GiB against 5.9.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.benchmarks._figure import sample_model, show

from cairn.config import home

HERE = Path(__file__).parent / "contenders"
LLAMAFACTORY = "llamafactory==0.9.5"
RANK, LENGTH, WARMUP, STEPS = 8, 512, 1, 4
WORDS = [
    "stone",
    "path",
    "hill",
    "rain",
    "north",
    "summit",
    "valley",
    "cloud",
    "river",
    "snow",
    "light",
    "wind",
    "water",
    "night",
    "field",
    "tree",
    "road",
    "house",
]


@cache
def environment() -> Path:
    """The Python of LlamaFactory's environment."""
    folder = home.home() / "environments" / LLAMAFACTORY.replace("==", "-")
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        requirements = str(HERE / "llamafactory.txt")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, "--requirement", requirements], check=True)
        subprocess.run([*install, "--no-deps", LLAMAFACTORY], check=True)
        (folder / "complete").touch()
    return python


def words(count: int, generator: random.Random) -> str:
    """So many tokens of SmolLM2, one a word."""
    return " ".join(generator.choice(WORDS) for _ in range(count))


def varied(generator: random.Random, median: int, most: int) -> int:
    """A length as conversations have them."""
    return max(4, min(most, round(generator.lognormvariate(0, 0.9) * median)))


def write_chats(path: Path, count: int, *, equal: bool) -> None:
    """Conversations of one turn, 400 tokens each or of lengths that vary."""
    generator = random.Random(0)
    with path.open("w") as file:
        for _ in range(count):
            asked, answered = (150, 250) if equal else (varied(generator, 50, 200), varied(generator, 90, 260))
            messages = [
                {"role": "user", "content": words(asked, generator)},
                {"role": "assistant", "content": words(answered, generator)},
            ]
            file.write(json.dumps({"messages": messages}) + "\n")


def write_pairs(path: Path, count: int) -> None:
    """A prompt and two answers each."""
    generator = random.Random(0)
    with path.open("w") as file:
        for _ in range(count):
            prompt = [{"role": "user", "content": words(varied(generator, 80, 180), generator)}]
            chosen, rejected = (
                [{"role": "assistant", "content": words(varied(generator, 50, 140), generator)}] for _ in range(2)
            )
            file.write(json.dumps({"prompt": prompt, "chosen": chosen, "rejected": rejected}) + "\n")


def trained(settings: dict[str, Any], trainer: str) -> dict[str, Any]:
    """The figures of one process. Raises CalledProcessError with its output where it failed."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "settings.json"
        path.write_text(json.dumps({**settings, "trainer": trainer, "scratch": scratch}))
        if trainer == "llamafactory":
            command = [str(environment()), str(HERE / "llamafactory_sft.py"), str(path)]
        else:
            module = "trl_dpo" if trainer == "trl" else "ours"
            command = [sys.executable, "-m", f"tests.benchmarks.contenders.{module}", str(path)]
        quiet = {
            "OMP_NUM_THREADS": str(settings["threads"]),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "CUDA_VISIBLE_DEVICES": "",
        }
        done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            done.check_returncode()
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found


def compared(settings: dict[str, Any], other: str, rounds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Ours and the other's figures, taken in turns."""
    taken = [(trained(settings, "cairn"), trained(settings | settings["theirs"], other)) for _ in range(rounds)]
    ours, theirs = zip(*taken, strict=True)
    return list(ours), list(theirs)


def report(name: str, work: str, runs: tuple[list[Any], list[Any]], against: str, goal: float) -> None:
    """Speed by the clock and by the CPU's time, which neighbours disturb less, and memory."""
    for of, label in (("seconds", ""), ("cpu_seconds", " of CPU time")):
        ours, other = ([run[work] / run[of] for run in side] for side in runs)
        show(name + label, f"{work}/s", ours, other, against=against, goal=goal)
    ours, other = ([1 / (run["peak_bytes"] / 2**30) for run in side] for side in runs)
    show(f"{name}, peak memory", "1/GiB", ours, other, against=against, goal=min(1.0, goal))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only comparisons whose name has this in it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="a directory; none: SmolLM2-135M-Instruct")
    parser.add_argument("--steps", type=int, default=STEPS, help="counted steps, after one that is not")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or sample_model()
        base = settings_of(Path(folder)) | {"model": str(model), "threads": arguments.threads}
        base["steps"] = WARMUP + arguments.steps
        for name, work, other, against, goal, settings in comparisons(base, Path(folder)):
            if arguments.only in name:
                report(name, work, compared(base | settings, other, arguments.rounds), against, goal)


def settings_of(folder: Path) -> dict[str, Any]:
    """What all comparisons have in common; the data are written into `folder`."""
    write_chats(folder / "varied.jsonl", 8 * (WARMUP + STEPS), equal=False)
    write_chats(folder / "equal.jsonl", 8 * (WARMUP + STEPS), equal=True)
    write_pairs(folder / "pairs.jsonl", 4 * (WARMUP + STEPS))
    return {
        "rank": RANK,
        "length": LENGTH,
        "warmup": WARMUP,
        "steps": WARMUP + STEPS,
        "stage": {"name": "sft"},
        "theirs": {},
    }


def comparisons(base: dict[str, Any], folder: Path) -> list[tuple[str, str, str, str, float, dict[str, Any]]]:
    """Name, work, other trainer, its description, goal and settings."""
    factory = f"LlamaFactory 0.9.5 with its defaults, {base['threads']} threads"
    eight = {"rows_a_pass": 8, "rows_a_step": 8}
    packed = {"data": str(folder / "varied.jsonl"), "rows_a_pass": 1, "rows_a_step": 3, "theirs": eight}
    equal = {"data": str(folder / "equal.jsonl"), "rows_a_pass": 1, "rows_a_step": 8, "theirs": eight}
    dpo = {
        "data": str(folder / "pairs.jsonl"),
        "stage": {"name": "dpo", "precompute_reference": True},
        "rows_a_pass": 1,
        "rows_a_step": 2,
        "theirs": {"rows_a_pass": 2, "rows_a_step": 4},
    }
    bare = "the same model, rows and loss in a bare PyTorch loop"
    found = []
    for precision, goal in (("fp32", 2.5), ("bf16", 1.8)):
        one = {"precision": precision}
        found += [
            (f"sft, varied lengths, {precision}", "tokens", "llamafactory", factory, goal, packed | one),
            (f"sft, equal lengths, {precision}", "tokens", "llamafactory", factory, 1.0, equal | one),
            (f"dpo, {precision}", "pairs", "trl", "TRL 1.16, micro-batch 2, reference ahead", 1.8, dpo | one),
        ]
    loop = packed | {"precision": "fp32", "theirs": {}}
    return [*found, ("the loop, sft, fp32", "tokens", "bare", bare, 1 / 1.1, loop)]


if __name__ == "__main__":
    main()
