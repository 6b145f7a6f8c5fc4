"""Evaluation over Ray: equal to one process, however many workers, long documents spread, errors in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from cairn.cluster.evaluation import EvaluationJob, evaluate
from cairn.data.documents import read_documents
from cairn.errors import AdapterError, CairnError, DataError, ModelError, UserError
from cairn.evaluation.bits_per_byte import bits_per_byte, score_documents
from cairn.evaluation.subject import Subject

WINDOW = 64


def write_documents(path: Path, texts: list[tuple[str, str]]) -> Path:
    lines = [json.dumps({"text": text, "meta": {"pile_set_name": subset}}) + "\n" for text, subset in texts]
    path.write_bytes(zstandard.compress("".join(lines).encode()))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One file with a book, an empty text and zero bytes in it, one with many short texts."""
    folder = tmp_path_factory.mktemp("data")
    book = "It was a bright cold day. " * 1200
    first = write_documents(
        folder / "a.jsonl.zst", [(book, "Gutenberg (PG-19)"), ("", "Github"), ("nul\x00\x00", "Github")]
    )
    second = write_documents(folder / "b.jsonl.zst", [(f"{n} + {n} = {2 * n}", "DM Mathematics") for n in range(40)])
    return first, second


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
class TestOnRay:
    """On the shared local cluster."""

    def job(self, tiny_path: Path, files: tuple[Path, Path], **changes: Any) -> EvaluationJob:
        data = tuple(str(path) for path in files)
        return EvaluationJob(**{"model": str(tiny_path), "data": data, "window": WINDOW, **changes})

    def test_equals_one_process(self, tiny_path: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
        progress: list[tuple[int, int]] = []
        job = self.job(tiny_path, files, output=str(tmp_path / "out"), by_position=True, workers=2)
        report = evaluate(job, on_progress=lambda documents, tokens: progress.append((documents, tokens)))
        subject = Subject(str(tiny_path))
        documents = read_documents([str(path) for path in files])
        expected = list(score_documents(subject.load(), subject.load_tokenizer(), documents, window=WINDOW))
        assert [(s.file, s.line, s.subset, s.bytes, s.tokens) for s in report.scores] == [
            (s.file, s.line, s.subset, s.bytes, s.tokens) for s in expected
        ]
        assert [s.nats for s in report.scores] == pytest.approx([s.nats for s in expected], rel=1e-5)
        assert report.bits_per_byte.micro == pytest.approx(bits_per_byte(expected), rel=1e-6)
        assert progress[-1] == (43, report.totals.tokens)
        written = json.loads((tmp_path / "out" / "report.json").read_text())
        assert written["documents"] == 43
        assert written["settings"]["window"] == WINDOW
        assert sum(row["tokens"] for row in written["bits_per_token_by_position"]) == written["tokens"]
        assert len((tmp_path / "out" / "documents.jsonl").read_text().splitlines()) == 43

    def test_one_worker_and_a_limit(self, tiny_path: Path, files: tuple[Path, Path]) -> None:
        report = evaluate(self.job(tiny_path, files, workers=1, limit=3))
        assert [score.line for score in report.scores] == [1, 2, 3, 1, 2, 3]
        assert set(report.bits_per_byte.per_subset) == {"Gutenberg (PG-19)", "Github", "DM Mathematics"}

    def test_a_bad_line_is_named_and_nothing_is_written(self, tiny_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "bad.jsonl"
        path.write_text('{"text": "fine", "meta": {"pile_set_name": "Github"}}\n{"text": \n')
        with pytest.raises(DataError, match=r"bad\.jsonl:2") as caught:
            evaluate(self.job(tiny_path, (path, path), output=str(tmp_path / "out")))
        assert type(caught.value) is DataError
        assert caught.value.exit_code == 2
        assert list((tmp_path / "out").iterdir()) == []

    def test_a_broken_model_is_an_error(self, files: tuple[Path, Path], tmp_path: Path) -> None:
        import torch
        from tests.tiny import build_model, build_tokenizer

        model = build_model()
        with torch.no_grad():
            model.model.norm.weight.fill_(float("nan"))
        model.save_pretrained(tmp_path)
        build_tokenizer().save_pretrained(tmp_path)
        with pytest.raises(CairnError, match="the model is broken"):
            evaluate(self.job(tmp_path, files, limit=3))


@pytest.mark.unit
class TestRefusals:
    """Before Ray and before any weight is read."""

    def refused(self, tiny_path: Path, files: tuple[Path, Path], **changes: Any) -> EvaluationJob:
        return EvaluationJob(**{"model": str(tiny_path), "data": (str(files[0]),), "window": WINDOW, **changes})

    def test_what_is_fine(self, tiny_path: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
        job = self.refused(tiny_path, files, output=str(tmp_path / "out"), data=(str(files[0]),) * 2)
        job.check()
        assert job.files() == [files[0]]

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            ({"data": ("/nowhere/x.jsonl",)}, DataError, "no such file"),
            ({"window": 513}, ModelError, "513 tokens are more than the 512 positions"),
            ({"window": 0}, UserError, "a window of 0 tokens"),
            ({"precision": "fp8"}, UserError, "there is no precision 'fp8'"),
            ({"workers": 0}, UserError, "0 workers"),
            ({"limit": 0}, UserError, "a limit of 0"),
            ({"adapter": "nobody"}, AdapterError, "there is no adapter 'nobody'"),
            ({"model": "/nowhere/model"}, ModelError, "no such model"),
        ],
    )
    def test_what_is_not(
        self, tiny_path: Path, files: tuple[Path, Path], changes: dict[str, Any], error: type[UserError], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            self.refused(tiny_path, files, **changes).check()
