"""Training beside a quantised base: exact at ZeRO 0 to 2, resumed bit for bit, and never a bit of the base changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.engines import EXACT, check_two_steps, engine_over
from tests.training.runs import losses, recipe_for, run_local, write_documents
from tests.training.test_two_workers import micro_batches
from tests.training.toys import DTYPES, masters_of, plain_steps, update_error
from torch import multiprocessing

from cairn.cli.main import run as command
from cairn.cluster.evaluation import EvaluationJob
from cairn.config.load import with_overrides
from cairn.config.model import Quantization
from cairn.errors import ModelError, RecipeError
from cairn.evaluation.bits_per_byte import bits_per_byte, score_documents
from cairn.evaluation.subject import Subject
from cairn.models.load import load_model, load_tokenizer
from cairn.models.quantization import quantised_sha256
from cairn.plugins import METHODS
from cairn.records import Document, Source
from cairn.stages.sft import Sft
from cairn.training.folder import ADAPTER, publish

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


def lora_over(path: Path, kind: str) -> Callable[[str], Any]:
    """Makes the tiny model with quantised linears and a LoRA that is not zero, in a precision."""

    def make(precision: str) -> Any:
        base = load_model(path, precision=precision, quantization=Quantization(kind=kind))
        torch.manual_seed(0)
        method = METHODS.load("lora")
        model = method(method.Config(rank=4)).attach(base)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.1)
                if parameter.requires_grad:  # PEFT makes fp32 beside 8 bits, the engine what the precision says
                    parameter.data = parameter.data.to(DTYPES[precision])
        return model

    return make


@pytest.mark.parametrize("zero_stage", [0, 1, 2])
@pytest.mark.parametrize(("kind", "precision"), [("nf4", "fp32"), ("nf4", "bf16"), ("int8", "bf16")])
def test_two_steps_equal_plain_torch(kind: str, precision: str, zero_stage: int, tiny_path: Path) -> None:
    check_two_steps(precision, zero_stage, accumulation=2, model=lora_over(tiny_path, kind))


CASES = [("nf4", "fp32", 0), ("nf4", "bf16", 1), ("int8", "bf16", 2)]


def work(rank: int, folder: str, path: Path) -> None:
    """One of two workers: two steps of every case; the first keeps the masters and the hash of its base."""
    from cairn.training.local import process_group

    torch.set_num_threads(1)
    with process_group(Path(folder) / "init", rank=rank, world_size=2):
        for kind, precision, zero_stage in CASES:
            engine = engine_over(lora_over(path, kind)(precision), precision, zero_stage)
            for step in (0, 1):
                engine.step(micro_batches(step, rank, 1), Sft())
            masters = masters_of(engine)
            if rank == 0:
                torch.save((masters, quantised_sha256(engine.model)), Path(folder) / f"{kind}-{zero_stage}.pt")


@pytest.mark.full
def test_two_workers_equal_plain_torch(tmp_path: Path, tiny_path: Path) -> None:
    multiprocessing.spawn(work, args=(str(tmp_path), tiny_path), nprocs=2)
    for kind, precision, zero_stage in CASES:
        policy = lora_over(tiny_path, kind)(precision)
        start = {name: p.detach().float().clone() for name, p in policy.named_parameters()}
        untouched = quantised_sha256(policy)
        steps = [[micro for rank in (0, 1) for micro in micro_batches(step, rank, 1)] for step in (0, 1)]
        wanted, *_ = plain_steps(policy, Sft(), steps)
        masters, sha256 = torch.load(tmp_path / f"{kind}-{zero_stage}.pt")
        assert update_error(masters, wanted, start) < EXACT, kind
        assert sha256 == untouched


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_run_resumes_bit_for_bit_and_leaves_the_base_alone(
    kind: str, tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with gradient checkpointing, which must not change a bit."""
    import cairn.training.run as run_module

    bases, load = [], run_module.load_model

    def loaded(*given: Any, **named: Any) -> Any:
        bases.append(load(*given, **named))
        return bases[-1]

    monkeypatch.setattr(run_module, "load_model", loaded)
    untouched = quantised_sha256(load_model(tiny_path, precision="fp32", quantization=Quantization(kind=kind)))
    found = []
    for folder, stop_after, again in (("straight", None, False), ("stopped", 7, True)):
        settings = {"checkpoint_every": 5, "steps": 10, "gradient_checkpointing": again}
        recipe = recipe_for(
            tmp_path / folder, tiny_path, model={"path": str(tiny_path), "quantization": kind}, training=settings
        )
        if stop_after is not None:
            run_local(recipe, stop_after=stop_after)
        weights = losses(run_local(recipe)), (recipe.run_path / ADAPTER / "adapter_model.safetensors").read_bytes()
        found.append(weights)
    assert found[0] == found[1]
    assert found[0][0][-1] < found[0][0][0]
    assert [quantised_sha256(base) for base in bases] == [untouched] * 3


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"adapter": {"name": "full"}}, "cannot be trained"),
        ({"training": {"zero_stage": 3}}, "would lose the scales"),
    ],
)
def test_what_a_quantised_base_cannot_do_is_refused_early(
    sections: dict[str, Any], message: str, tmp_path: Path, tiny_path: Path
) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe_for(tmp_path, tiny_path, model={"path": str(tiny_path), "quantization": "nf4"}, **sections)


def test_a_base_that_was_saved_quantised_is_trained_and_refuses_the_same(tmp_path: Path, tiny_path: Path) -> None:
    saved = tmp_path / "saved"
    base = load_model(tiny_path, precision="fp32", quantization=Quantization(kind="nf4"))
    base.save_pretrained(saved)
    load_tokenizer(tiny_path).save_pretrained(saved)
    assert quantised_sha256(load_model(saved, precision="fp32")) == quantised_sha256(base)
    recipe = recipe_for(tmp_path / "run", saved, training={"steps": 4})
    figures = losses(run_local(recipe))
    assert figures[-1] < figures[0]
    with pytest.raises(ModelError, match="cannot be trained"):
        run_local(recipe_for(tmp_path / "full", saved, adapter={"name": "full"}))


def bpb_of(subject: Any) -> float:
    """Of a few lines, in this process."""
    documents = [Document(Source("test", 1), "the stone path over the hill in the rain")]
    return bits_per_byte(score_documents(subject.load(), subject.load_tokenizer(), documents, window=64))


@pytest.mark.parametrize("model", ["tiny_path", pytest.param("smollm2_path", marks=pytest.mark.full)])
def test_the_whole_path(
    model: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Train, stop, resume, publish, evaluate, export: the card says how the base was held, and everything asks it."""
    path: Path = request.getfixturevalue(model)
    storage = {"path": str(tmp_path / "storage"), "publish": "small"}
    section = {"path": str(path), "quantization": "nf4"}
    recipe = recipe_for(tmp_path, path, model=section, storage=storage, training={"steps": 6, "checkpoint_every": 2})
    straight = losses(run_local(with_overrides(recipe, {"storage.run": "straight"})))
    run_local(recipe, stop_after=5)
    assert losses(run_local(recipe)) == straight
    assert straight[-1] < straight[0]

    note = json.loads((recipe.run_path / ADAPTER / "run.json").read_text())
    assert note["base"]["quantization"]["kind"] == "nf4"
    assert publish(recipe) == "small@1"
    job = EvaluationJob(str(path), ("x",), adapter="small", storage=recipe.storage.path)
    assert job.subject().quantization == Quantization(kind="nf4")
    assert replace(job, quantization="none").subject().quantization is None
    assert replace(job, quantization="int8").subject().quantization == Quantization(kind="int8")
    as_trained = bpb_of(job.subject())
    assert as_trained != bpb_of(replace(job, quantization="none").subject())

    documents, costs = write_documents(tmp_path / "held.jsonl", 3), []
    for precision, tolerance in (("fp32", 1e-5), ("bf16", 1e-2)):
        merged = tmp_path / precision
        arguments = ["export", "small", "--to", "safetensors", "--output", str(merged), "--precision", precision]
        assert command([*arguments, "--storage", recipe.storage.path, "--text", str(documents)]) == 0
        assert "nf4 base + adapter" in capsys.readouterr().out.replace("\n", " ")
        cost = json.loads((merged / "merge_cost.json").read_text())
        costs.append(cost["bits_per_byte_merged"] / cost["bits_per_byte_as_trained"] - 1)
        assert abs(costs[-1]) <= tolerance
        assert bpb_of(Subject(str(merged))) == pytest.approx(as_trained, rel=tolerance)
    assert abs(costs[1]) > abs(costs[0]), "bf16 rounds"
