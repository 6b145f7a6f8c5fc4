"""Evaluation over Ray: equal to one process, however many workers, long documents spread, errors in words."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tests.tiny import build_model

from cairn.cluster.evaluation import EvaluationJob, _warnings, evaluate
from cairn.data.documents import read_documents
from cairn.errors import AdapterError, DataError, ModelError, UserError
from cairn.evaluation.bits_per_byte import DocumentScore, bits_per_byte, score_documents
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

    @pytest.mark.full
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

    def test_what_a_worker_refuses_is_said_in_words(
        self, tiny_path: Path, files: tuple[Path, Path], tmp_path: Path
    ) -> None:
        import torch
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        other = build_model(hidden_size=32)
        get_peft_model(other, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")).save_pretrained(
            tmp_path
        )
        with pytest.raises(AdapterError) as caught:
            evaluate(self.job(tiny_path, files, adapter=str(tmp_path)))
        assert type(caught.value) is AdapterError
        assert caught.value.next_step


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_cluster")
def test_a_killed_worker_costs_nothing_and_counts_nothing_twice(tiny_path: Path, tmp_path: Path) -> None:
    book = "So we beat on, boats against the current. " * 4000
    path = write_documents(
        tmp_path / "a.jsonl.zst", [("short", "Github"), (book, "Books3"), *[("x" * 5000, "ArXiv")] * 4]
    )
    killed: list[int] = []

    def kill_once(documents: int, tokens: int) -> None:
        if not killed:
            killed.extend(scoring_processes())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    job = EvaluationJob(model=str(tiny_path), data=(str(path),), window=WINDOW, workers=1)
    report = evaluate(job, on_progress=kill_once)
    assert len(killed) == 1
    subject = Subject(str(tiny_path))
    documents = read_documents([path])
    expected = list(score_documents(subject.load(), subject.load_tokenizer(), documents, window=WINDOW))
    assert [(s.line, s.tokens) for s in report.scores] == [(s.line, s.tokens) for s in expected]
    assert [s.nats for s in report.scores] == pytest.approx([s.nats for s in expected], rel=1e-5)


def scoring_processes() -> list[int]:
    """Processes of this machine that are scoring actors of this session's Ray: descendants of this one."""
    import psutil

    return [child.pid for child in psutil.Process().children(recursive=True) if "(Score)" in " ".join(child.cmdline())]


@pytest.mark.unit
class TestRefusals:
    """Before Ray and before any weight is read."""

    def refused(self, tiny_path: Path, files: tuple[Path, Path], **changes: Any) -> EvaluationJob:
        return EvaluationJob(**{"model": str(tiny_path), "data": (str(files[0]),), "window": WINDOW, **changes})

    def test_what_is_fine(self, tiny_path: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
        job = self.refused(tiny_path, files, output=str(tmp_path / "out"), data=(str(files[0]),) * 2)
        job.check()
        assert [str(file) for file in job.files()] == [str(files[0])]

    def test_warnings(self, tiny_path: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
        (tmp_path / "adapter_config.json").write_text("{}")
        (tmp_path / "run.json").write_text('{"base": {"path": "m", "sha256": "abc"}}')
        job = self.refused(tiny_path, files, adapter=str(tmp_path))
        scores = [DocumentScore("a", line, "Github", 4, 4, 1.0, exact=line > 1) for line in range(3)]
        lossy, foreign = _warnings(job, scores, "def")
        assert lossy.startswith("2 of 3 documents do not come back")
        assert "another base model" in foreign
        assert list(_warnings(job, scores[2:], "abc")) == []

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
