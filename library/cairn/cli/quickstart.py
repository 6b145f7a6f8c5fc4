"""`cairn quickstart`: the whole path once, on this machine, with a real model: sample to HTTP answer.

Nothing here is special to it: every step is the function that a command calls, on the recipe
`jobs/recipes/quickstart.yaml`. What was made before (sample, token shards, a finished run) is found again, so a second
time takes a fraction. At most 12 minutes on two cores with 8 GiB.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cairn.config.recipe import Recipe
    from cairn.evaluation.report import Report

NAME = "quickstart"
RECIPE = Path("jobs/recipes/quickstart.yaml")
ADAPTED = "docstrings (held out)"
"""The subset that the adapter is made for; the others are ordinary held-out text."""

DOCUMENTS = 16
WINDOW = 512
ANSWER_TOKENS = 48


@dataclass
class Findings:
    """What the steps found, as it goes into `quickstart.json`."""

    seconds: dict[str, float] = field(default_factory=dict)
    bpb_before: dict[str, Any] = field(default_factory=dict)
    bpb_after: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Says what begins and notes how long it took."""
        from cairn.cli.terminal import errors

        errors.rule(f"[bold]{name}", align="left")
        begin = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begin, 1)
        errors.print(f"{name} took {self.seconds[name]} s", style="dim")


def command(
    recipe: Annotated[Path, typer.Option(help="The recipe to follow.")] = RECIPE,
) -> None:
    """Adapt, measure, publish and ask a real 135M-parameter model, in a few minutes."""
    from cairn.cli.quickstart_report import show, write
    from cairn.cluster.session import connected
    from cairn.config.load import load

    parsed = load(recipe)
    findings = Findings()
    with findings.step("sample"):
        from cairn.cli import sample

        sample.command()
    with connected(parsed.training.most_workers * parsed.training.cpus_per_worker):
        follow(parsed, findings)
    path = write(findings)
    show(findings, path)


def follow(recipe: Recipe, findings: Findings) -> None:
    """Every step from token shards to the answer; the caller is connected to Ray."""
    from cairn.cli.prepare import prepare_with_progress
    from cairn.store.store import Store
    from cairn.training.trainer import train

    with findings.step("prepare"):
        prepared = prepare_with_progress(recipe)
        held_out = write_held_out(recipe)
    with findings.step("evaluate before"):
        findings.bpb_before = _figures(_evaluate(recipe, held_out, adapter=None, name="before"))
    with findings.step("train"):
        result = train(recipe, prepared=prepared)
    with findings.step("evaluate after"):
        findings.bpb_after = _figures(_evaluate(recipe, held_out, adapter=str(result.adapter_path), name="after"))
    with findings.step("publish"):
        assert recipe.storage.publish is not None, "the quickstart's recipe publishes"
        store = Store(Path(recipe.storage.path) / "adapters")
        adapter = store.resolve(recipe.storage.publish)
        store.promote(adapter.card.name, adapter.card.version, "quickstart")
    with findings.step("serve"):
        findings.answers = _ask(recipe, adapter.reference)
    findings.places |= {
        "run": str(result.run_path),
        "token shards": str(prepared.train),
        "adapter": f"{adapter.reference} in {adapter.path}",
        "reports": str(_folder()),
    }


def write_held_out(recipe: Recipe) -> Path:
    """Held-out signatures with their docstrings, in the model's own chat form, as a file in the Pile's layout."""
    from cairn.config import home
    from cairn.models.load import load_tokenizer

    tokenizer = load_tokenizer(recipe.model.path)
    rows = (home.samples() / "openai_heldout.jsonl").read_text(encoding="utf-8").splitlines()[:DOCUMENTS]
    path = _folder() / "heldout.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for row in rows:
        text = tokenizer.apply_chat_template(json.loads(row)["messages"], tokenize=False)
        lines.append(json.dumps({"text": text, "meta": {"pile_set_name": ADAPTED}}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _folder() -> Path:
    from cairn.config import home

    return home.home() / "quickstart"


def _evaluate(recipe: Recipe, held_out: Path, *, adapter: str | None, name: str) -> Report:
    from cairn.cli.evaluate import evaluate_with_progress
    from cairn.cli.terminal import errors
    from cairn.cluster.evaluation import EvaluationJob
    from cairn.config import home

    report = evaluate_with_progress(
        EvaluationJob(
            model=recipe.model.path,
            adapter=adapter,
            data=(str(held_out), str(home.samples() / "quick.jsonl.zst")),
            window=WINDOW,
            limit=DOCUMENTS,
            output=str(_folder() / name),
            storage=recipe.storage.path,
            format="pile",
        )
    )
    errors.print(report.table())
    return report


def _figures(report: Report) -> dict[str, Any]:
    figures = report.bits_per_byte
    return {"micro": figures.micro, "per_subset": dict(figures.per_subset)}


def _ask(recipe: Recipe, reference: str) -> dict[str, str]:
    """The same held-out question to the base model and to the adapter, over HTTP."""
    from cairn.cli.terminal import errors
    from cairn.config import home
    from cairn.serving.deploy import serve_applications
    from cairn.serving.settings import InferenceSettings

    first = (home.samples() / "openai_heldout.jsonl").read_text(encoding="utf-8").splitlines()[0]
    question, expected = (message["content"] for message in json.loads(first)["messages"])
    answers = {"question": question, "written by a person": expected}
    cpus = recipe.training.most_workers * recipe.training.cpus_per_worker
    settings = InferenceSettings.read(
        {"model": recipe.model.path, "storage": recipe.storage.path, "cpus_per_replica": cpus}
    )
    serving = serve_applications(settings, port=_free_port())
    try:
        errors.print(f"serving at {serving.url}", markup=False)
        for model in (settings.base_name, reference):
            messages = [{"role": "user", "content": question}]
            body = {"model": model, "messages": messages, "max_tokens": ANSWER_TOKENS, "temperature": 0.0}
            answer = _call(f"{serving.url}/v1/chat/completions", body)
            answers[model] = answer["choices"][0]["message"]["content"]
    finally:
        serving.stop()
    return answers


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _call(url: str, body: dict[str, Any]) -> Any:
    from urllib.request import Request, urlopen

    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('CAIRN_API_KEY', '')}"}
    with urlopen(Request(url, data=json.dumps(body).encode(), headers=headers), timeout=120) as reply:
        return json.load(reply)
