"""Records of one kind as another where nothing is invented: one preference set feeds every stage.

A comparison is two judgements. It is a conversation where the recipe asks for its chosen answer
(`data.train_on: chosen`), never without being asked: supervised training would not know of the rejected one.
"""

from __future__ import annotations

import msgspec

from cairn.records import KINDS, Comparison, Conversation, Judgement, Record


def converted(record: Record, kind: str, train_on: str) -> tuple[Record, ...] | None:
    """`record` as records of `kind`; None where it is none."""
    if isinstance(record, KINDS[kind]):
        return (record,)
    if isinstance(record, Comparison) and KINDS[kind] is Judgement:
        return _judgements(record)
    if isinstance(record, Comparison) and KINDS[kind] is Conversation and train_on == "chosen":
        return (_chosen(record),)
    return None


def _judgements(pair: Comparison) -> tuple[Record, ...]:
    return tuple(
        Judgement(pair.source, pair.prompt, answer, good, pair.subset, pair.id, pair.tools)
        for answer, good in ((pair.chosen, True), (pair.rejected, False))
    )


def _chosen(pair: Comparison) -> Conversation:
    prompt = tuple(msgspec.structs.replace(message, weight=0.0) for message in pair.prompt)
    return Conversation(pair.source, (*prompt, *pair.chosen), pair.tools, subset=pair.subset, id=pair.id)
