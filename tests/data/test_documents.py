"""Files to records: one bad line costs one line and has a reason; scoring leaves nothing out."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.data.components import canonical_tag, components, pile_weight
from cairn.data.detection import SAMPLE_ROWS
from cairn.data.documents import read_documents, read_records
from cairn.data.drops import DropReason, Rejected
from cairn.errors import DataError
from cairn.records import Document

pytestmark = pytest.mark.unit

GOOD = b'{"text": "a", "meta": {"pile_set_name": "Github"}}'


def reasons(path: Path, **settings: object) -> list[str]:
    found = read_records([path], **settings)  # type: ignore[arg-type]
    return [record.reason.name if isinstance(record, Rejected) else record.subset for record in found]


def test_each_bad_line_costs_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"\n".join(
            [GOOD, b"", b'{"text": "\xff"}', b'{"text": "\\ud83d", "meta": {"pile_set_name": "x"}}', GOOD + GOOD,
             b'{"text": 1}', GOOD]
        )
    )  # fmt: skip
    assert reasons(path) == ["Github", "BLANK_LINE", "NOT_JSON", "NOT_JSON", "NOT_JSON", "NOT_OF_FORMAT", "Github"]
    bad = [record for record in read_records([path]) if isinstance(record, Rejected)]
    assert [record.source.line for record in bad] == [2, 3, 4, 5, 6]
    assert f"begins at byte {len(GOOD) + 2}" in bad[1].detail


def test_limit_counts_records_of_each_file_after_the_subset(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        lines = [GOOD.replace(b"Github", tag) for tag in (b"ArXiv", b"Github", b"Github", b"Github")]
        (tmp_path / name).write_bytes(b"\n".join(lines))
    found = list(read_records([tmp_path / "*.jsonl"], "pile", 2, ["Github"]))
    assert [r.reason.name if isinstance(r, Rejected) else r.source.line for r in found] == ["OTHER_SUBSET", 2, 3] * 2


def test_subsets_match_by_alias_and_by_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD.replace(b"Github", b"CommonCrawl") + b"\n" + GOOD.replace(b"Github", b"github"))
    assert reasons(path, subsets=["Pile-CC"]) == ["CommonCrawl", "OTHER_SUBSET"]


def test_a_text_file_is_one_document_to_the_byte(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("é\r\nb\rc\n".encode())
    (document,) = read_documents([tmp_path / "a.txt"])
    assert document.text.encode() == "é\r\nb\rc\n".encode()


def test_most_of_the_first_rows_settle_the_format(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"x": 1}\n' + 3 * (GOOD + b"\n") + b'{"text": "no meta"}\n')
    assert reasons(path) == ["NOT_OF_FORMAT", "Github", "Github", "Github", "NOT_OF_FORMAT"]


@pytest.mark.parametrize("lines", [1, SAMPLE_ROWS + 1])
def test_a_file_of_no_known_format_is_an_error(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"qqq": 1}\n' * lines)
    with pytest.raises(DataError, match="rows with the keys qqq are of no known format"):
        list(read_records([path]))


def test_scoring_stops_at_a_bad_line_and_at_a_conversation(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"\n\n{broken\n")
    with pytest.raises(DataError, match="not valid JSON") as caught:
        list(read_documents([path]))
    assert caught.value.where == f"{path}:3"
    path.write_bytes(b'{"instruction": "a", "output": "b"}\n')
    with pytest.raises(DataError, match="documents are needed, this is a conversation"):
        list(read_documents([path]))


def test_documents_come_in_order_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"\n\n" + GOOD)
    assert [(type(d), d.source.line) for d in read_documents([path])] == [(Document, 1), (Document, 3)]


def test_unusable_reasons_are_the_records_fault() -> None:
    assert {reason for reason in DropReason if not reason.unusable} == {
        DropReason.BLANK_LINE, DropReason.OTHER_SUBSET, DropReason.BINARY_FILE, DropReason.NO_PREFERENCE,
        DropReason.NOT_JUDGED, DropReason.EMPTY, DropReason.TOO_LONG, DropReason.HELD_OUT,
    }  # fmt: skip


def test_pile_components() -> None:
    assert len(components()) == 22
    assert sum(c.weight_percent for c in components()) == pytest.approx(100.0, abs=0.05)
    assert sum(c.raw_documents for c in components()) == 146_340_692
    assert pile_weight("StackExchange") == pytest.approx(0.0513)
    assert pile_weight("CommonCrawl") == pile_weight("Pile-CC") == pytest.approx(0.1811)
    assert pile_weight("stackexchange!") is None
    assert canonical_tag("bibliotik") == "Books3"
    assert canonical_tag("my subset") == "my subset"
