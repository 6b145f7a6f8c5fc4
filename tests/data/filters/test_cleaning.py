"""Policies and cleaning: which filter meets which component, and what is counted."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.data.filters.verdicts import document

from cairn.data.cleaning import Cleaning, Kept, clean
from cairn.data.components import components
from cairn.data.drops import Dropped, is_unusable, note
from cairn.data.policies import GROUPS, Policy, policies
from cairn.errors import RecipeError
from cairn.plugins import FILTERS

pytestmark = pytest.mark.unit

CODE = "#include <std.h>\n" + "\n".join(f"int f{i}() {{ return {i}; }}  // javascript" for i in range(9))
MATHS = "\n".join(f"What is {i} + {i}?\n{2 * i}" for i in range(60))
CHAT = "\n".join(f"[12:{i:02d}] <ubuntu{i}> LOL" for i in range(60)) + "\n=== ada@b.org is now known as 8.8.8.8"
PARLIAMENT = "\n".join(["(The sitting was opened at 9 a.m.)", "PRESIDENT", "Beifall", "(Applause)"] * 30)
WEB = [name for name in FILTERS.names() if FILTERS.load(name).for_web]
ENGLISH = "The members of the house have said that it is to be done with care, and so it was done.\n"


def test_every_component_is_in_one_group():
    tags = [tag for group in policies()[GROUPS].values() for tag in group]
    assert sorted(tags) == sorted(component.tag for component in components())


@pytest.mark.parametrize(
    ("subset", "text"),
    [("Github", CODE), ("DM Mathematics", MATHS), ("Ubuntu IRC", CHAT), ("EuroParl", PARLIAMENT)],
)
def test_web_rules_leave_code_mathematics_chat_and_parliament_as_they_are(subset, text):
    every_web_filter = [{"name": name, **({"model": "none.safetensors"} if name == "quality" else {})} for name in WEB]
    for policy in (Policy.parse("default"), Policy.parse(every_web_filter)):
        assert clean(document(text, subset), policy) == Kept(document(text, subset), {})
    assert isinstance(clean(document(text, "Pile-CC"), Policy.parse("default")), Dropped)


def test_what_is_meant_for_the_web():
    assert set(WEB) == {
        "boilerplate", "c4", "dclm_lines", "fineweb", "gopher_quality", "gopher_repetition", "language", "quality", "symbols"
    }  # fmt: skip


def names(policy: Policy, subset: str) -> list[str]:
    return [judge.name for judge in policy.filters_for(subset)]


def test_the_default_policy():
    default = Policy.parse("default")
    web = ["language", "gopher_repetition", "gopher_quality", "c4", "fineweb", "dclm_lines", "pii"]
    assert names(default, "Pile-CC") == names(default, "CommonCrawl") == names(default, "OpenWebText2") == web
    assert names(default, "StackExchange") == ["pii"]
    assert [judge.config.kinds for judge in default.filters_for("Github")] == [("secret",)]
    assert names(default, "PhilPapers") == ["length"]
    for subset in ("Books3", "DM Mathematics", "Ubuntu IRC", "EuroParl", "Enron Emails", "unknown", "my own"):
        assert names(default, subset) == []


def test_a_rule_is_for_tags_kinds_groups_and_own_subsets():
    policy = Policy.parse([
        {"name": "length", "min_words": 3, "subsets": ["prose", "Bibliotik", "my own"]},
        {"name": "symbols", "subsets": ["code"]},
        {"name": "fineweb", "except": ["OpenWebText2"]},
        "pii",
    ])  # fmt: skip
    assert names(policy, "Books3") == names(policy, "Gutenberg (PG-19)") == ["length", "pii"]
    assert names(policy, "my own") == ["length", "fineweb", "pii"]
    assert names(policy, "Github") == ["symbols", "pii"]
    assert (names(policy, "Pile-CC"), names(policy, "OpenWebText2")) == (["fineweb", "pii"], ["pii"])
    assert names(policy, "unknown") == ["fineweb", "pii"]


def test_all_mistakes_are_told_at_once():
    with pytest.raises(RecipeError) as caught:
        Policy.parse([{"name": "gofer_quality"}, {"name": "c4", "min_sentence": 3}, {"name": "pii", "subsets": "web"},
                      {"name": "pii", "except": ["-Github"]}, 7])  # fmt: skip
    assert [problem.path for problem in caught.value.problems] == [
        "data.filters.0.name", "data.filters.1.min_sentence", "data.filters.2.subsets", "data.filters.3.except",
        "data.filters.4",
    ]  # fmt: skip
    assert "did you mean 'gopher_quality'" in str(caught.value)
    with pytest.raises(RecipeError, match="did you mean 'default'"):
        Policy.parse("defualt")
    with pytest.raises(RecipeError, match="a list of filters is needed"):
        Policy.parse({"name": "pii"})


def test_counts_by_subset_filter_and_reason_add_up():
    policy = Policy.parse([{"name": "length", "min_words": 3}, {"name": "dclm_lines", "max_removed": 0.9}, "pii"])
    documents = [document(text) for text in ("two words", "a b c\nWORD\nWORD\nto a@b.org", "all is well here")]
    documents.append(document("one", "Github"))
    halves = [Cleaning(), Cleaning()]
    for i, each in enumerate(documents):
        halves[i % 2].count(each, clean(each, policy))
    total = Cleaning()
    for half in halves:
        total.add(half.subsets)
    web = total.subsets["Pile-CC"]
    assert (web.documents, web.kept, web.dropped) == (3, 2, {"length: too few words": 1})
    assert web.changed == {"dclm_lines: lines of capitals": 1, "pii: email masked": 1}
    assert web.amounts == {"dclm_lines: lines of capitals": 2, "pii: email masked": 1}
    assert (web.bytes_before, web.bytes_after) == (51, 32)
    assert total.subsets["Github"].dropped == {"length: too few words": 1}


def test_each_filter_sees_what_the_former_left_and_the_order_is_kept():
    text = ENGLISH * 2 + "SIGN\n" + "IN\n"
    first = Policy.parse([{"name": "dclm_lines", "max_removed": 1.0}, {"name": "length", "max_characters": 180}])
    second = Policy.parse([{"name": "length", "max_characters": 180}, {"name": "dclm_lines", "max_removed": 1.0}])
    assert clean(document(text), first) == Kept(document((ENGLISH * 2).strip()), {"dclm_lines: lines of capitals": 2})
    assert clean(document(text), second) == Dropped("length: too many characters", str(len(text)))


def test_a_document_of_which_nothing_is_left_is_dropped():
    assert clean(document("12\n34"), Policy.parse([{"name": "dclm_lines", "max_removed": 1.0}])) == Dropped(
        "dclm_lines: nothing left"
    )


def test_the_reason_of_a_filter_is_counted_and_is_no_fault_of_the_record():
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    note(counts, examples, "gopher_quality: too few words", "00.jsonl.zst:1: 3")
    assert counts == {"gopher_quality: too few words": 1}
    assert not is_unusable("gopher_quality: too few words")
    assert is_unusable("not valid JSON in UTF-8")


def test_a_filter_in_a_file_of_ones_own(tmp_path):
    own = tmp_path / "shouting.py"
    own.write_text(
        '"""No shouting."""\n'
        "from cairn.data.filters.base import Filter\n"
        "class Shouting(Filter):\n"
        '    """Drops what is in capitals."""\n'
        "    def faults(self, view):\n"
        "        if view.text.isupper():\n"
        '            yield "capitals", ""\n'
    )
    policy = Policy.parse([{"name": str(own)}])
    assert clean(document("HELLO"), policy) == Dropped("shouting: capitals")
    assert isinstance(clean(document("Hello"), policy), Kept)
    plain = json.loads(json.dumps(policy.plain()))
    own.write_text(own.read_text().replace("isupper", "islower"))
    assert clean(document("HELLO"), Policy.parse(plain)) == Dropped("shouting: capitals")
    assert Policy.parse(plain).fingerprint() == policy.fingerprint() != Policy.parse([{"name": str(own)}]).fingerprint()


def test_a_policy_survives_being_written_down():
    default = Policy.parse("default")
    again = Policy.parse(json.loads(json.dumps(default.plain())))
    assert (again.plain(), again.fingerprint()) == (default.plain(), default.fingerprint())
    assert [names(again, component.tag) for component in components()] == [
        names(default, component.tag) for component in components()
    ]


def test_a_fingerprint_tells_two_policies_apart():
    same = [Policy.parse([{"name": "length", "min_words": n}]).fingerprint() for n in (3, 3, 4)]
    assert same[0] == same[1] != same[2]
    assert Policy.parse([{"name": "length", "min_words": 3, "subsets": ["web"]}]).fingerprint() != same[0]
