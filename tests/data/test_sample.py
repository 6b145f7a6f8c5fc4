"""The sample corpus: the same bytes twice, in the Pile's layout, with splits that share nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from cairn.data import sample
from cairn.data.components import pile_weight
from cairn.data.documents import read_documents, read_records
from cairn.data.sample import FILES, QUICK_FILE, build_corpus
from cairn.data.stdlib_text import library_files, module_group
from cairn.records import Comparison, Conversation

pytestmark = pytest.mark.slow

FRACTION = 0.05


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample") / "corpus"
    build_corpus(folder, fraction=FRACTION)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_builds_are_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    build_corpus(tmp_path / "again", fraction=FRACTION)
    assert contents(tmp_path / "again") == contents(corpus)
    assert list(tmp_path.iterdir()) == [tmp_path / "again"]


def test_a_finished_corpus_is_left_alone(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_build", None)
    assert build_corpus(corpus, fraction=FRACTION).documents


def test_seven_tags_of_the_pile_in_every_split(corpus: Path) -> None:
    report = build_corpus(corpus, fraction=FRACTION)
    for name in (*FILES.values(), QUICK_FILE):
        tags = {document.subset for document in read_documents([corpus / name], "pile")}
        assert tags == set(report.stand_ins) == set(report.documents[name])
        assert all(pile_weight(tag) for tag in tags)
        assert len(tags) == 7


def test_no_text_stands_in_two_splits(corpus: Path) -> None:
    texts = {split: [d.text for d in read_documents([corpus / name])] for split, name in FILES.items()}
    everything = [text for split in texts.values() for text in split]
    assert len(everything) == len(set(everything))


def test_each_file_is_one_zstd_frame_without_a_size(corpus: Path) -> None:
    raw = (corpus / FILES["train"]).read_bytes()
    assert zstandard.get_frame_parameters(raw).content_size == zstandard.CONTENTSIZE_UNKNOWN
    decoder = zstandard.ZstdDecompressor().decompressobj()
    lines = decoder.decompress(raw).splitlines()
    assert decoder.eof
    assert not decoder.unused_data
    assert all(json.loads(line).keys() == {"text", "meta"} for line in lines)


def test_instructions_say_the_same_in_three_formats_and_hold_out_whole_modules(corpus: Path) -> None:
    answers = {}
    for suffix in ("", "_heldout"):
        found = []
        for name in (f"alpaca{suffix}.json", f"sharegpt{suffix}.json", f"openai{suffix}.jsonl"):
            records = list(read_records([corpus / name]))
            assert records
            found.append(
                [(r.messages[0].content, r.messages[1].content) for r in records if isinstance(r, Conversation)]
            )
            assert len(found[-1]) == len(records)
        assert found[0] == found[1] == found[2]
        answers[suffix] = found[0]
    modules = {suffix: {ask.splitlines()[1] for ask, _ in pairs} for suffix, pairs in answers.items()}
    assert not modules[""] & modules["_heldout"]
    assert not {answer for _, answer in answers[""]} & {answer for _, answer in answers["_heldout"]}


def test_preferences_are_the_right_docstring_against_another_functions_or_a_broken_one(corpus: Path) -> None:
    rights = [r.messages[1].content for r in read_records([corpus / "openai.jsonl"]) if isinstance(r, Conversation)]
    pairs = list(read_records([corpus / "preferences.jsonl"]))
    assert all(isinstance(pair, Comparison) for pair in pairs)
    assert [pair.chosen[0].content for pair in pairs] == rights
    broken = [pair for pair in pairs if pair.chosen[0].content.startswith(pair.rejected[0].content)]
    others = [pair for pair in pairs if pair not in broken]
    assert min(len(broken), len(others)) > len(pairs) / 5
    assert all(pair.rejected[0].content in rights for pair in others)
    longer = sum(len(pair.rejected[0].content) > len(pair.chosen[0].content) for pair in others)
    assert 0.3 < longer / len(others) < 0.7
    (held_out,) = {type(record) for record in read_records([corpus / "preferences_heldout.jsonl"])}
    assert held_out is Comparison


def test_the_whole_library_gives_thousands_of_examples_and_no_test_files() -> None:
    files = library_files()
    assert 400 < len(files) < 1500
    assert not [name for name, _ in files if "/test/" in name or "site-packages" in name]
    group = module_group("textwrap.py", dict(files)["textwrap.py"])
    wrap = next(e for e in group.examples if "def wrap(text, width" in e.signature)
    assert wrap.signature.startswith("# textwrap\ndef wrap(text, width=70, **kwargs):")
    assert wrap.docstring.startswith("Wrap a single paragraph of text")


def test_building_needs_no_torch() -> None:
    code = "import cairn.data.sample, sys; assert not {'torch', 'ray', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
