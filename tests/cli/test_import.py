"""`cairn import`: the recipe to a file or to standard output, the report to standard error, the exit code by the recipe."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.config.moving_in import AXOLOTL, LLAMAFACTORY

from cairn.cli.main import run
from cairn.config.load import load

pytestmark = pytest.mark.unit


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """An Axolotl configuration with nothing in it that this version lacks."""
    path = tmp_path / "axolotl.yaml"
    path.write_text(AXOLOTL["text"].source)
    return path


def test_a_recipe_that_loads_is_written(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "recipe.yaml"
    assert run(["import", str(config), "--output", str(target)]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Axolotl key" in shown.err
    assert "micro_batch_size" in shown.err
    assert f"Run: cairn train {target}" in target.read_text().splitlines()[0]
    assert load(target).training.micro_batch == 4


def test_without_output_the_recipe_goes_to_standard_output(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text() + "sequence_length: 3\nspecial_tokens: {pad_token: x}\n")
    assert run(["import", str(config)]) == 0
    shown = capsys.readouterr()
    (tmp_path / "again.yaml").write_text(shown.out)
    assert load(tmp_path / "again.yaml").stage.name == "pretrain"
    assert "#   sequence_length: 3 (Axolotl has no such key; did you mean 'sequence_len'?)" in shown.out
    assert "the tokenizer is the model's own" in shown.out
    assert "no equal" in shown.err


def test_a_recipe_that_does_not_load_is_written_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, target = tmp_path / "l.yaml", tmp_path / "recipe.yaml"
    config.write_text(LLAMAFACTORY["pretrain"].source + "optim: no_such_optimizer\nflash_attn: fa9\n")
    assert run(["import", str(config), "--output", str(target)]) == 2
    shown = capsys.readouterr().err
    assert "this version has no optimizer" in " ".join(shown.split())
    assert "optimizer.name" in shown
    assert "LlamaFactory has no such value" in shown
    assert "name: no_such_optimizer" in target.read_text()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("learning_rate: 1\nseed: 2\n", "its keys: learning_rate, seed"),
        ("model: {path: m}\nstage: sft\n", "this is a recipe already"),
        ("- a\n- b\n", "a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_what_is_no_configuration_is_refused(
    text: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert run(["import", str(tmp_path / "x.yaml")]) == 2
    shown = capsys.readouterr()
    assert part in shown.err
    assert shown.out == ""
