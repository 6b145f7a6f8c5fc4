"""Versions made of versions: what they do, what their cards say, whose child they may be, and their lineage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tests.store.published import publish_lora
from tests.tiny import build_model

from cairn.adapters.attach import attach_saved
from cairn.adapters.combine import combine
from cairn.errors import AdapterError
from cairn.store.card import Base, Facts
from cairn.store.deriving import publish_derived, read_parents
from cairn.store.lineage import lineage
from cairn.store.store import Adapter, Store
from cairn.store.verify import verify

pytestmark = pytest.mark.unit

TOKENS = torch.arange(20).reshape(2, 10)


@pytest.fixture
def store(tmp_path: Path, tiny_path: Path) -> Store:
    """support@1 and legal@1, of unequal ranks."""
    store = Store(tmp_path / "adapters")
    publish_lora(store, "support", tiny_path, tmp_path / "support", seed=1, rank=4)
    publish_lora(store, "legal", tiny_path, tmp_path / "legal", seed=2, rank=6)
    return store


def mixed(store: Store, name: str, *references: str) -> Adapter:
    parents = [store.resolve(reference) for reference in references]
    made = combine(read_parents(parents), [0.5] * len(parents))
    return publish_derived(store, name, made.weights, parents, operation="half of each", error=made.error)


def test_a_derived_version_is_sound_and_says_what_it_is(store: Store) -> None:
    card = mixed(store, "both", "support", "legal").card
    assert (card.parents, card.operation, card.rank, card.stage) == (
        ("support@1", "legal@1"),
        "half of each",
        10,
        "sft",
    )
    assert card.metrics["relative_error"] == pytest.approx(0.0, abs=1e-6)
    assert card.base == store.resolve("support").card.base
    assert {"tokenizer.json", "chat_template.jinja"} <= set(card.files)
    assert all(check.ok for check in verify(store.resolve("both")))


@torch.no_grad()
def test_it_answers_as_its_parents_together(store: Store) -> None:
    whole = mixed(store, "both", "support", "legal")
    twice = mixed(store, "twice", "both", "both")
    answers = [attach_saved(build_model(), adapter.path)(TOKENS).logits for adapter in (whole, twice)]
    torch.testing.assert_close(answers[0], answers[1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(answers[0], build_model()(TOKENS).logits, atol=1e-2)


def test_strangers_are_refused(store: Store, tmp_path: Path, tiny_path: Path) -> None:
    publish_lora(store, "foreign", tiny_path, tmp_path / "a", base=Base(path="elsewhere", sha256="0" * 64))
    publish_lora(store, "other", tiny_path, tmp_path / "b", tokenizer_sha256="1" * 64)
    for name, what in (("foreign", "base"), ("other", "tokenizer")):
        with pytest.raises(AdapterError, match=f"{name}@1 has another {what} than support@1"):
            mixed(store, "both", "support", name)
    assert "both" not in store.names()


def test_one_without_a_chat_template_takes_over_the_others(store: Store, tmp_path: Path, tiny_path: Path) -> None:
    for name in ("bare", "odd"):
        published = publish_lora(store, f"{name}-whole", tiny_path, tmp_path / name)
        shutil.copytree(published.path, tmp_path / f"{name}-less", ignore=shutil.ignore_patterns("chat_template.jinja"))
    (tmp_path / "odd-less" / "chat_template.jinja").write_text("{{ messages }}")
    known = {name: value for name, value in dict(published.card).items() if name in Facts.model_fields}
    for name in ("bare", "odd"):
        store.publish(name, tmp_path / f"{name}-less", Facts(**known))
    card = mixed(store, "both", "bare", "support").card
    assert card.files["chat_template.jinja"] == store.resolve("support").card.files["chat_template.jinja"]
    with pytest.raises(AdapterError, match="odd@1 has another chat template than support@1"):
        mixed(store, "both", "bare", "support", "odd")


def test_the_lineage_goes_back_to_what_was_trained(store: Store, tmp_path: Path, tiny_path: Path) -> None:
    publish_lora(store, "support", tiny_path, tmp_path / "next", parent="support@1")
    mixed(store, "both", "support@2", "legal@1")
    top = mixed(store, "top", "both", "legal")
    found = [(a.depth, a.named, a.card is not None) for a in lineage(store, top.card)]
    assert found == [
        (1, "both@1", True),
        (2, "support@2", True),
        (3, "support@1", True),
        (2, "legal@1", True),
        (1, "legal@1", True),
    ]
    store.delete("legal@1")
    gone = [ancestor for ancestor in lineage(store, top.card) if ancestor.card is None]
    assert [(ancestor.named, "no adapter 'legal'" in ancestor.reason) for ancestor in gone] == [("legal@1", True)] * 2


def test_a_parent_without_a_number_leads_nowhere_in_a_circle(store: Store, tmp_path: Path, tiny_path: Path) -> None:
    child = publish_lora(store, "support", tiny_path, tmp_path / "next", parent="support")
    (ancestor,) = lineage(store, child.card)
    assert (ancestor.card, "does not number" in ancestor.reason) == (None, True)
    folder = publish_lora(store, "support", tiny_path, tmp_path / "more", parent="/some/folder")
    assert [ancestor.card for ancestor in lineage(store, folder.card)] == [None]
