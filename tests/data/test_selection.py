"""Which subsets the words of `data.subsets` mean."""

from __future__ import annotations

import pytest

from cairn.data.components import components
from cairn.data.selection import Selection
from cairn.records import Source

pytestmark = pytest.mark.unit

HERE = Source("/pile/train/07.jsonl.zst", 3)


def chosen(*words: str) -> set[str]:
    selection = Selection.of(words)
    return {component.tag for component in components() if (component.tag, HERE) in selection}


def test_no_word_takes_everything_also_what_is_not_of_the_pile() -> None:
    assert len(chosen()) == 22
    assert ("my subset", HERE) in Selection.of(())


def test_tags_match_exactly_and_aliases_are_explicit() -> None:
    assert chosen("Github", "bibliotik") == {"Github", "Books3"}
    assert chosen("github!", "GITHUB") == set()
    assert ("my subset", HERE) in Selection.of(["my subset"])


def test_the_five_kinds_are_all_components_once() -> None:
    parts = [chosen(kind) for kind in ("academic", "internet", "prose", "dialogue", "miscellaneous")]
    assert [len(part) for part in parts] == [7, 4, 3, 6, 2]
    assert len(set().union(*parts)) == 22


def test_pile_uncopyrighted_leaves_out_the_five_with_one_mark() -> None:
    gone = {"Books3", "OpenWebText2", "OpenSubtitles", "BookCorpus2", "YoutubeSubtitles"}
    assert chosen("pile-uncopyrighted") == {component.tag for component in components()} - gone
    assert chosen("consent-1") == gone
    kept = sum(c.weight_percent for c in components() if c.tag not in gone)
    assert kept == pytest.approx(75.02, abs=0.01)


def test_a_minus_leaves_out_and_wins() -> None:
    assert chosen("dialogue", "-HackerNews", "-enron") == chosen("dialogue") - {"HackerNews", "Enron Emails"}
    assert chosen("-academic") == {component.tag for component in components()} - chosen("academic")
    assert chosen("Github", "-Github") == set()


def test_sources_are_globs_over_the_file() -> None:
    assert len(chosen("source:*/07.jsonl.zst")) == 22
    assert chosen("-source:*/0?.jsonl.zst") == set()
    assert ("Github", Source("/pile/train/08.jsonl.zst", 1)) not in Selection.of(["source:*/07.*"])
