"""`cairn adapters`, verb by verb, on a store with LoRAs of a tiny base."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from tests.generation.lora import save_lora
from tests.generation.methods import save_method
from tests.store.published import publish_lora

from cairn.adapters.attach import attach_saved
from cairn.cli.main import run
from cairn.models.load import load_model
from cairn.store.card import Facts
from cairn.store.store import Store

pytestmark = pytest.mark.unit


@pytest.fixture
def storage(tmp_path: Path, tiny_path: Path) -> Path:
    """support@1, support@2 (of support@1) and legal@1."""
    store = Store(tmp_path / "storage" / "adapters")
    publish_lora(store, "support", tiny_path, tmp_path / "a", seed=1, rank=4)
    publish_lora(store, "support", tiny_path, tmp_path / "b", seed=2, rank=4, parent="support@1")
    publish_lora(store, "legal", tiny_path, tmp_path / "c", seed=3, rank=6)
    return tmp_path / "storage"


def call(storage: Path, *arguments: str) -> int:
    return run(["adapters", *arguments, "--storage", str(storage)])


def test_show_tells_the_lineage_and_every_module(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(storage, "show", "support") == 0
    text = capsys.readouterr().out
    assert json.loads(text.partition("\nfiles: ")[0])["version"] == 2
    assert "from support@1 (sft, 20" in text
    row = next(line.split() for line in text.splitlines() if line.startswith("model.layers.1.mlp.down_proj"))
    assert row[1:3] == ["4", "4"]
    assert float(row[3]) > 0


def test_verify_lists_every_check_and_fails_by_its_exit_code(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(storage, "verify", "legal") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["ok"] * 9
    weights = storage / "adapters" / "legal" / "1" / "adapter_model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.unlink()
    weights.write_bytes(changed)
    assert call(storage, "verify", "legal") == 1
    assert re.search(r"sha256\s+FAILED\s+adapter_model.safetensors has sha256", capsys.readouterr().out)
    assert call(storage, "verify", "nobody") == 2


def test_combine_publishes_with_error_and_parents(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(storage, "combine", "support@1:0.7", "legal:0.3", "--publish", "both") == 0
    text = capsys.readouterr().out
    assert "both@1: combine support@1:0.7 legal@1:0.3 --how cat" in text
    assert re.search(r"rank 10, relative error \d\.\d\de-0[89]|rank 10, relative error 0", text)
    card = Store(storage / "adapters").resolve("both").card
    assert card.parents == ("support@1", "legal@1")
    assert card.metrics["relative_error"] is not None
    assert card.metrics["relative_error"] < 1e-6


@pytest.mark.parametrize(
    ("arguments", "operation"),
    [
        (["--how", "svd", "--rank", "3"], "--how svd --rank 3"),
        (["--how", "ties", "--density", "0.2"], "--how ties --density 0.2"),
        (["--how", "dare", "--seed", "7"], "--how dare --density 0.5 --seed 7"),
        (["--how", "magnitude_prune"], "--how magnitude_prune --density 0.5"),
    ],
)
def test_other_ways_tell_how_far_they_are(
    storage: Path, arguments: list[str], operation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(storage, "combine", "support@1:0.7", "legal:0.3", *arguments, "--publish", "both") == 0
    assert "largest errors" in capsys.readouterr().out
    card = Store(storage / "adapters").resolve("both").card
    assert card.operation.endswith(operation)
    assert card.metrics["relative_error"] is not None
    assert 0.01 < card.metrics["relative_error"] < 1.5


def test_linear_says_that_it_is_no_sum_of_updates(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = ("support@1:0.7", "support@2:0.3")
    assert call(storage, "combine", *parts, "--how", "linear", "--publish", "both") == 0
    assert "adds the factors A and B separately" in capsys.readouterr().out
    assert call(storage, "combine", "support:1", "legal:1", "--how", "linear", "--publish", "both") == 2
    assert "needs equal ranks" in capsys.readouterr().err


@torch.no_grad()
def test_a_stack_pruned_to_its_rank_answers_the_same(
    storage: Path, tiny_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(storage, "stack", "support@1", "legal", "--publish", "stacked") == 0
    assert call(storage, "prune", "stacked", "--energy", "0.9999999999", "--publish", "small") == 0
    assert "rank 10 before" in capsys.readouterr().out
    assert call(storage, "prune", "stacked", "--rank", "2", "--publish", "small") == 0
    assert "largest errors" in capsys.readouterr().out
    store, tokens = Store(storage / "adapters"), torch.arange(20)[None]
    answers = [
        attach_saved(load_model(tiny_path, precision="fp32"), store.resolve(name).path)(tokens).logits
        for name in ("stacked", "small@1")
    ]
    torch.testing.assert_close(answers[0], answers[1], rtol=1e-3, atol=1e-3)
    assert store.resolve("small@2").card.rank == 2
    assert store.resolve("small@2").card.parents == ("stacked@1",)


def test_diff_prints_plots_and_writes_json(storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "diff.html"
    assert call(storage, "diff", "support@1", "legal", "--output", str(page)) == 0
    text = capsys.readouterr().out
    assert "in all:" in text
    assert text.count("self_attn.q_proj") == 2
    assert page.read_text().count("<svg") == 7
    assert call(storage, "diff", "support@1", "support@1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["adapters"] == ["support@1", "support@1"]
    assert found["cosine"] == pytest.approx(1.0)
    assert all(module["overlap_in"] == pytest.approx(1.0) for module in found["modules"])


def test_add_takes_a_folder_in_and_delete_takes_it_out(
    storage: Path, tmp_path: Path, tiny_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_lora(tmp_path / "made", rank=5, seed=9)
    assert call(storage, "add", str(folder), "bought") == 2
    assert "--base" in capsys.readouterr().err
    assert call(storage, "add", str(folder), "bought", "--base", str(tiny_path)) == 0
    assert "bought@1: lora of rank 5 on" in capsys.readouterr().out
    assert call(storage, "promote", "bought", "prod") == 0
    assert call(storage, "delete", "bought@1") == 2
    assert "points at bought@1" in capsys.readouterr().err
    assert call(storage, "delete", "support@1") == 0
    assert call(storage, "show", "support@2") == 0
    assert "from support@1 ('support' has no version 1)" in capsys.readouterr().out


@torch.no_grad()
def test_merge_writes_a_model_that_answers_as_both(storage: Path, tmp_path: Path, tiny_path: Path) -> None:
    assert call(storage, "merge", "support", "--output", str(tmp_path / "merged")) == 0
    tokens = torch.arange(20)[None]
    path = Store(storage / "adapters").resolve("support").path
    expected = attach_saved(load_model(tiny_path, precision="fp32"), path)(tokens).logits
    found = load_model(tmp_path / "merged", precision="fp32")(tokens).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["combine", "support:0", "legal:1", "--publish", "x"], "cannot be the weight of support"),
        (["combine", "support:1", "legal:0,3", "--publish", "x"], "cannot be the weight of legal"),
        (["combine", "support:1", "nobody:1", "--publish", "x"], "there is no adapter 'nobody'"),
        (["combine", "support:1", "legal:1", "--how", "cat", "--rank", "3", "--publish", "x"], "no choice of a rank"),
        (["combine", "support:1", "legal:1", "--publish", "../x"], "cannot name an adapter"),
        (["prune", "legal", "--publish", "x"], "a rank or an energy"),
        (["merge", "legal", "--output", "x", "--precision", "int3"], "precision"),
    ],
)
def test_wrong_wishes_are_the_users_to_mend(
    storage: Path, arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(storage, *arguments) == 2
    assert part in capsys.readouterr().err
    assert Store(storage / "adapters").names() == ["legal", "support"]


@pytest.mark.parametrize(
    ("method", "values", "advice"),
    [
        ("prompt_tuning", {"num_virtual_tokens": 3}, "serve it by its own name"),
        ("alora", {"invocation": [65], "rank": 2}, "serve it by its own name"),
        ("ia3", {}, "cairn adapters convert other@1 --publish NAME"),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["combine", "other:1", "legal:1", "--publish", "x"],
        ["stack", "other", "legal", "--publish", "x"],
        ["prune", "other", "--publish", "x", "--rank", "2"],
        ["diff", "other", "legal"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_only_loras_are_added_compared_or_cut(
    storage: Path,
    tiny_path: Path,
    tmp_path: Path,
    arguments: list[str],
    method: str,
    values: dict[str, object],
    advice: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = save_method(tmp_path / "other", method, values, load_model(tiny_path, precision="fp32"))
    facts = Store(storage / "adapters").resolve("legal").card.model_dump(include=set(Facts.model_fields))
    Store(storage / "adapters").publish("other", folder, Facts.parse({**facts, "method": method}))
    assert call(storage, *arguments) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"is of the method '{method}', and only LoRAs can be added, compared or cut" in told
    assert advice in told
    assert Store(storage / "adapters").names() == ["legal", "other", "support"]
