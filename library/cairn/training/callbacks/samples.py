"""What the model says, every `training.sample_every` steps and at the end, sampled as the recipe's `generation` says.

Each text goes into `samples.jsonl` (step, prompt, answer) and to the trackers that take text. The workers share the
prompts. Cost: the generation itself, while the step waits; no second set of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

from cairn.data.prompts import prompt_tokens
from cairn.errors import UserError
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.records import Comparison, Conversation, Document, Judgement, Message, Record
from cairn.training.callback import Callback, Figures
from cairn.training.lines import StepLines
from cairn.training.run import Run
from cairn.training.speaking import speaking_copy
from cairn.training.validation import held_out_records

SAMPLES = "samples.jsonl"
HELD_OUT_PROMPTS = 4
CHARACTERS_OF_A_DOCUMENT = 100
"""The beginning of a held-out document, which the model continues."""


class Samples(Callback):
    """`prompts` are text and tokens, the same on every worker."""

    def start(self, run: Run, *, resumed_at: int) -> None:
        """Prepare the prompts. UserError where there are none, or the model does not speak."""
        if run.recipe.training.sample_every is None:
            return
        if run.stage.head != "language":
            raise UserError(
                f"a model of the stage '{run.recipe.stage.name}' scores and says nothing",
                where="training.sample_every",
                next_step="leave it out",
            )
        self.prompts: list[tuple[str, tuple[int, ...]]] = list(_prompts(run))
        if not self.prompts:
            raise UserError(
                "there is nothing to ask the model",
                where="training.sample_every",
                next_step="give training.sample_prompts, or data.validation",
            )
        if run.session.rank == 0:
            self.lines = StepLines(run.recipe.run_path / SAMPLES, resumed_at=resumed_at)

    def after_step(self, run: Run, step: int, figures: Figures) -> Figures:
        """The texts, when due."""
        every = run.recipe.training.sample_every
        if every is None or (step % every and step != run.total_steps):
            return {}
        answers = self._answers(run)
        said = [(text, answer) for (text, _), answer in zip(self.prompts, answers, strict=True)]
        if run.session.rank == 0:
            for prompt, answer in said:
                self.lines.write(step, {"prompt": prompt, "answer": answer})
        return {"samples": "\n\n".join(f"> {prompt}\n\n{answer}" for prompt, answer in said)}

    def _answers(self, run: Run) -> list[str]:
        """One an each prompt, on every worker; a worker generates every world-size-th of them."""
        rank, world_size = run.session.rank, run.session.world_size
        settings = run.recipe.generation.model_dump()
        requests = [Request(tokens, **settings) for _, tokens in self.prompts[rank::world_size]]
        with run.engine.whole() as model:
            generator = Generator(speaking_copy(model), run.tokenizer, max_running=max(1, len(requests)))
            mine = [answer.text for answer in generator.generate(requests)]
        gathered: list[Any] = [None] * world_size
        dist.all_gather_object(gathered, mine)
        return [gathered[i % world_size][i // world_size] for i in range(len(self.prompts))]


def _prompts(run: Run) -> Iterator[tuple[str, tuple[int, ...]]]:
    asked = run.recipe.training.sample_prompts
    if asked and run.stage.record is Document:
        yield from ((text, _tokens_of_text(run, text)) for text in asked)
    elif asked:
        yield from ((text, prompt_tokens(run.tokenizer, (Message("user", text),))) for text in asked)
    else:
        for record in held_out_records(run, HELD_OUT_PROMPTS):
            yield from _prompt_of(run, record)


def _prompt_of(run: Run, record: Record) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What comes before the answer; nothing of a conversation in which nobody answers."""
    if isinstance(record, Document):
        text = record.text[:CHARACTERS_OF_A_DOCUMENT]
        yield text, _tokens_of_text(run, text)
        return
    messages = record.messages if isinstance(record, Conversation) else record.prompt
    if isinstance(record, Conversation):
        answers = [i for i, message in enumerate(messages) if message.role == "assistant"]
        messages = messages[: answers[-1]] if answers else messages
    assert isinstance(record, Conversation | Comparison | Judgement), record
    if messages:
        yield messages[-1].content, prompt_tokens(run.tokenizer, messages, record.tools)


def _tokens_of_text(run: Run, text: str) -> tuple[int, ...]:
    """After the token that a document begins with in training."""
    tokenizer = run.tokenizer
    first = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    return (first, *tokenizer(text, add_special_tokens=False)["input_ids"])
