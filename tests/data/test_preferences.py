"""What a row that compares or judges answers becomes: pairs and their weights, ties, missing scores, empty answers."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from cairn.data.detection import detect
from cairn.data.documents import read_records
from cairn.data.drops import DropReason, EmptyAnswer, NoPreference, NotJudged, Rejected
from cairn.data.format import Format
from cairn.errors import DataError
from cairn.records import Comparison, Judgement, Source

pytestmark = pytest.mark.unit

HERE = Source("f.jsonl", 3)

RANKING = """
about: answers with a score
record: comparison
requires: {question: string}
prompt: [{role: user, content: [question]}]
answers: [{each: answers, content: [text], score: score}]
id: id
"""
RANKS = RANKING.replace("score: score", "rank: rank")
WINNER = """
about: two answers and a winner
record: comparison
requires: {question: string}
prompt: [{role: user, content: [question]}]
answers:
  - content: [a]
    wins: {winner: 0}
  - content: [b]
    wins: {winner: 1}
ties: {winner: [2, tie]}
"""
PAIR = """
about: a pair
record: comparison
requires: {question: string}
prompt: [{role: user, content: [question]}]
chosen: [{role: assistant, content: [good]}]
rejected: [{role: assistant, content: [bad]}]
margin: margin
"""
VERDICT = """
about: an answer and a verdict
record: judgement
requires: {question: string}
messages: [{role: user, content: [question]}, {role: assistant, content: [text]}]
good: {at: good}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("RANKING", "RANKS", "WINNER", "PAIR", "VERDICT"):
        (tmp_path / f"{name}.yaml").write_text(globals()[name])
    return tmp_path


def records(folder: Path, name: str, **row: Any) -> list[Any]:
    return [*Format.load(str(folder / f"{name}.yaml")).records({"question": "q", **row}, HERE)]


def pairs(found: list[Any]) -> list[tuple[str, str]]:
    return [(record.chosen[0].content, record.rejected[0].content) for record in found]


def scored(*scores: Any) -> list[dict[str, Any]]:
    return [{"text": letter, "score": score} for letter, score in zip("abcdef", scores, strict=False)]


def test_every_two_answers_that_differ_are_a_pair(folder: Path) -> None:
    found = records(folder, "RANKING", answers=scored(1, 3, 2))
    assert sorted(pairs(found)) == [("b", "a"), ("b", "c"), ("c", "a")]


def test_a_ranking_weighs_one(folder: Path) -> None:
    found = records(folder, "RANKING", answers=scored(1, 3, 2, 2, 5))
    assert sum(record.weight for record in found) == pytest.approx(1.0, abs=1e-12)


def test_a_rankings_group_is_its_row_even_where_ids_repeat(folder: Path) -> None:
    groups = {record.group for record in records(folder, "RANKING", id="same", answers=scored(1, 3, 2))}
    assert groups == {"f.jsonl:3"}


def test_one_pair_is_no_group(folder: Path) -> None:
    assert records(folder, "RANKING", answers=scored(1, 3))[0].group == ""


def test_answers_of_one_score_are_no_pair(folder: Path) -> None:
    assert pairs(records(folder, "RANKING", answers=scored(3, 3, 1))) == [("a", "c"), ("b", "c")]


def test_less_is_better_in_a_rank(folder: Path) -> None:
    answers = [{"text": "a", "rank": 2}, {"text": "b", "rank": 1}]
    assert pairs(records(folder, "RANKS", answers=answers)) == [("b", "a")]


def test_a_rank_given_twice_is_a_tie(folder: Path) -> None:
    answers = [{"text": letter, "rank": rank} for letter, rank in (("a", 1), ("b", 1), ("c", 2))]
    assert pairs(records(folder, "RANKS", answers=answers)) == [("a", "c"), ("b", "c")]


def test_a_score_may_be_written_as_a_string(folder: Path) -> None:
    assert pairs(records(folder, "RANKING", answers=scored("9", "10"))) == [("b", "a")]


@pytest.mark.parametrize("nothing", [None, "", "N/A", float("nan"), "nan"])
def test_an_answer_without_a_score_is_in_no_pair(folder: Path, nothing: Any) -> None:
    assert pairs(records(folder, "RANKING", answers=scored(1, nothing, 2))) == [("c", "a")]


def test_a_score_that_is_no_number_is_an_error(folder: Path) -> None:
    with pytest.raises(DataError, match="'score': expected a number, found 'high'"):
        records(folder, "RANKING", answers=scored(1, "high"))


def test_scores_that_are_nowhere_are_an_error_and_no_tie(folder: Path) -> None:
    with pytest.raises(DataError, match="none of the 2 answers has a number at 'score'") as caught:
        records(folder, "RANKING", answers=[{"text": "a"}, {"text": "b"}])
    assert not isinstance(caught.value, NoPreference)


def test_scores_that_are_all_null_are_not_judged_yet(folder: Path) -> None:
    with pytest.raises(NotJudged):
        records(folder, "RANKING", answers=scored(None, None))


@pytest.mark.parametrize("scores", [(2, 2), (2,), (2, None)])
def test_a_row_without_a_better_answer_is_left_out(folder: Path, scores: tuple[Any, ...]) -> None:
    with pytest.raises(NoPreference):
        records(folder, "RANKING", answers=scored(*scores))


def test_answers_that_say_the_same_are_no_pair(folder: Path) -> None:
    answers = [{"text": "a", "score": 1}, {"text": "a", "score": 2}, {"text": "b", "score": 3}]
    found = records(folder, "RANKING", answers=answers)
    assert [(pair, record.weight) for pair, record in zip(pairs(found), found, strict=True)] == [(("b", "a"), 0.5)] * 2


@pytest.mark.parametrize("winner", [1, 1.0, "1", True])
def test_a_winner_is_known_as_number_string_or_boolean(folder: Path, winner: Any) -> None:
    assert pairs(records(folder, "WINNER", a="x", b="y", winner=winner)) == [("y", "x")]


@pytest.mark.parametrize("winner", [2, "2", "tie"])
def test_a_tie_is_left_out_by_its_name(folder: Path, winner: Any) -> None:
    with pytest.raises(NoPreference, match="is a tie"):
        records(folder, "WINNER", a="x", b="y", winner=winner)


def test_a_winner_that_is_neither_answer_nor_a_tie_is_an_error(folder: Path) -> None:
    with pytest.raises(
        DataError, match="'winner': 'A' says neither which answer is better nor that they tie"
    ) as caught:
        records(folder, "WINNER", a="x", b="y", winner="A")
    assert not isinstance(caught.value, NoPreference | NotJudged)


def test_no_winner_yet_is_not_judged(folder: Path) -> None:
    with pytest.raises(NotJudged):
        records(folder, "WINNER", a="x", b="y", winner=None)


def test_a_pair_weighs_one_and_has_its_margin(folder: Path) -> None:
    (record,) = records(folder, "PAIR", good="x", bad="y", margin="0.5")
    assert (record.weight, record.margin, record.group) == (1.0, 0.5, "")


@pytest.mark.parametrize("margin", [None, ""])
def test_no_margin_is_zero(folder: Path, margin: Any) -> None:
    assert records(folder, "PAIR", good="x", bad="y", margin=margin)[0].margin == 0.0


def test_a_pair_of_the_same_answer_is_left_out(folder: Path) -> None:
    with pytest.raises(NoPreference):
        records(folder, "PAIR", good="x", bad="x")


@pytest.mark.parametrize("answers", [{"good": " ", "bad": "y"}, {"good": "x", "bad": ""}])
def test_an_empty_answer_is_left_out(folder: Path, answers: dict[str, str]) -> None:
    with pytest.raises(EmptyAnswer):
        records(folder, "PAIR", **answers)


def test_an_empty_prompt_is_an_error(folder: Path) -> None:
    with pytest.raises(DataError, match="there is no prompt"):
        records(folder, "PAIR", question=" ", good="x", bad="y")


def messages(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def implicit(chosen: list[dict[str, str]], rejected: list[dict[str, str]], **more: Any) -> Comparison:
    name = "trl_explicit_messages" if "prompt" in more else "trl_implicit_messages"
    (record,) = Format.load(name).records({"chosen": chosen, "rejected": rejected, **more}, HERE)
    assert isinstance(record, Comparison)
    return record


def texts(found: Any) -> list[str]:
    return [message.content for message in found]


def test_the_prompt_is_what_both_answers_begin_with() -> None:
    record = implicit(messages("q", "a", "r", "x"), messages("q", "a", "r", "y"))
    assert (texts(record.prompt), texts(record.chosen), texts(record.rejected)) == (["q", "a", "r"], ["x"], ["y"])


def test_a_given_prompt_that_stands_in_both_answers_is_taken_off_them() -> None:
    record = implicit(messages("q", "x"), messages("q", "y"), prompt=messages("q"))
    assert (texts(record.chosen), texts(record.rejected)) == (["x"], ["y"])


def test_answers_that_part_early_keep_their_later_turns() -> None:
    record = implicit(messages("q", "x", "r", "s"), messages("q", "y"))
    assert (texts(record.chosen), texts(record.rejected)) == (["x", "r", "s"], ["y"])


@pytest.mark.parametrize("rejected", [messages("q", "a", "s", "y"), messages("s", "x")])
def test_answers_to_different_prompts_are_an_error(rejected: list[dict[str, str]]) -> None:
    with pytest.raises(DataError, match="the prompts of the two answers differ"):
        implicit(messages("q", "a", "r", "x"), rejected)


def test_texts_with_nothing_in_common_have_no_prompt() -> None:
    with pytest.raises(DataError, match="there is no prompt"):
        Format.load("trl_implicit_text").records({"chosen": "Yes.", "rejected": "No."}, HERE)


def test_a_prompt_that_is_answered_already_is_an_error() -> None:
    with pytest.raises(DataError, match="the prompt ends with the assistant's message"):
        implicit(messages("", "x")[1:], messages("", "y")[1:], prompt=messages("q", "a"))


def test_texts_are_parted_before_the_word_that_differs() -> None:
    (record,) = Format.load("trl_implicit_text").records({"chosen": "It is big.", "rejected": "It is bitter."}, HERE)
    assert isinstance(record, Comparison)
    assert (texts(record.prompt), texts(record.chosen), texts(record.rejected)) == (["It is"], ["big."], ["bitter."])


def test_two_texts_beside_a_prompt_of_another_name_are_not_taken_for_the_prompt_inside_them() -> None:
    with pytest.raises(DataError, match="of no known format"):
        detect([{"query": "q", "chosen": "It is big.", "rejected": "It is small."}], where="f.json")


@pytest.mark.parametrize(
    ("said", "good"), [(True, True), ("true", True), ("Yes", True), (1, True), ("false", False), (0, False)]
)
def test_a_verdict_is_yes_or_no_in_any_writing(folder: Path, said: Any, good: bool) -> None:
    (record,) = records(folder, "VERDICT", text="x", good=said)
    assert record.good is good


def test_a_verdict_in_other_words_is_an_error(folder: Path) -> None:
    with pytest.raises(DataError, match="'good': expected true or false, found 'maybe'"):
        records(folder, "VERDICT", text="x", good="maybe")


def test_a_verdict_that_is_nowhere_is_an_error(folder: Path) -> None:
    with pytest.raises(DataError, match="expected true or false, found nothing") as caught:
        records(folder, "VERDICT", text="x")
    assert not isinstance(caught.value, NotJudged)


def test_an_answer_nobody_judged_is_left_out(folder: Path) -> None:
    with pytest.raises(NotJudged):
        records(folder, "VERDICT", text="x", good=None)


def test_a_judged_answer_that_is_empty_is_left_out(folder: Path) -> None:
    with pytest.raises(EmptyAnswer):
        records(folder, "VERDICT", text="", good=True)


@pytest.mark.parametrize("feedback", ["up", "thumbs_up", "👍", 1, True])
def test_thumbs_up(feedback: Any) -> None:
    (record,) = Format.load("thumbs_log").records({"prompt": "q", "response": "a", "feedback": feedback}, HERE)
    assert isinstance(record, Judgement)
    assert record.good


@pytest.mark.parametrize("feedback", ["down", "thumbs_down", "👎", -1, 0, False])
def test_thumbs_down(feedback: Any) -> None:
    (record,) = Format.load("thumbs_log").records({"prompt": "q", "response": "a", "feedback": feedback}, HERE)
    assert isinstance(record, Judgement)
    assert not record.good


def test_a_log_of_thumbs_is_one_even_where_few_pressed() -> None:
    rows = [{"prompt": "q", "response": "a", "feedback": value} for value in (None, None, None, "up")]
    assert detect(rows, where="f.jsonl").best.format.name == "thumbs_log"


def helpsteer(helpfulness: int, **changes: Any) -> bool:
    row = {"prompt": "q", "response": "a", "helpfulness": helpfulness, "correctness": 0}
    (record,) = Format.load({"like": "helpsteer", **changes}).records(row, HERE)
    assert isinstance(record, Judgement)
    return record.good


def test_helpsteer_is_good_from_three() -> None:
    assert [helpsteer(value) for value in range(5)] == [False, False, False, True, True]


def test_a_recipe_sets_another_threshold() -> None:
    assert [helpsteer(value, good={"least": 4}) for value in range(5)] == [False, False, False, False, True]


def test_a_recipe_judges_by_another_score() -> None:
    assert not helpsteer(4, good={"at": "correctness"})


def test_a_recipe_prefers_the_safer_answer() -> None:
    changes = {"rename": {"better_response_id": "safer_response_id"}}
    row = {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 0, "safer_response_id": 1}
    assert pairs(Format.load({"like": "pku_saferlhf", **changes}).records(row, HERE)) == [("b", "a")]


def test_the_winner_of_a_table_may_have_another_name() -> None:
    changed = Format.load({"like": "shp", "rename": {"labels": "better", "history": "post"}})
    row = {"post": "q", "human_ref_A": "a", "human_ref_B": "b", "better": 0}
    assert pairs(changed.records(row, HERE)) == [("b", "a")]


@pytest.mark.parametrize("kind", [NoPreference, NotJudged, EmptyAnswer])
def test_what_is_left_out_survives_its_way_between_processes(kind: type[DataError]) -> None:
    again = pickle.loads(pickle.dumps(kind("none", where="f:1")))
    assert (type(again), again.what, again.where) == (kind, "none", "f:1")


@pytest.mark.parametrize("reason", [DropReason.NO_PREFERENCE, DropReason.NOT_JUDGED, DropReason.EMPTY])
def test_what_is_left_out_is_no_fault_of_the_data(reason: DropReason) -> None:
    assert not reason.unusable


def test_what_is_left_out_of_a_file_has_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"history": "q", "human_ref_A": "a", "human_ref_B": "b", "labels": 1}
    rows = [row, row | {"human_ref_B": "a"}, row | {"human_ref_A": ""}, row | {"labels": 5}]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    found = [record.reason for record in read_records([path], "shp") if isinstance(record, Rejected)]
    assert found == [DropReason.NO_PREFERENCE, DropReason.EMPTY, DropReason.NOT_OF_FORMAT]
