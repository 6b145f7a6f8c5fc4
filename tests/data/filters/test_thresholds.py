"""Every threshold at its border: the last value that is kept and the first that is not."""

from __future__ import annotations

import math

import pytest
from tests.data.filters.verdicts import left, reason, taken

pytestmark = pytest.mark.unit


def words(count: int, of: str = "abcd") -> str:
    """So many words that none repeats, with two stop words among them."""
    return " ".join(["the", "of", *(f"{of}{chr(97 + i // 26 % 26)}{chr(97 + i % 26)}" for i in range(count - 2))])


def lines(*groups: tuple[int, str]) -> str:
    """For each group so many lines, each a number of its own in letters behind the text."""
    made = []
    for count, text in groups:
        made += [text.replace("@", f"{chr(97 + len(made) // 26 + i // 26)}{chr(97 + i % 26)}") for i in range(count)]
    return "\n".join(made)


GOPHER_QUALITY = [
    (words(50), words(49), "too few words"),
    (words(60) + " x" * 40, words(60) + " x" * 130, "words too short"),
    ("the of " + "abcdefghij " * 60, "the of " + "abcdefghijk " * 130, "words too long"),
    (words(100) + "#" * 10, words(100) + "#" * 11, "too many #"),
    (words(100) + "..." * 10 + "x", words(100) + "..." * 11 + "x", "too many ellipses"),
    (words(100) + "…" * 10 + "x", words(100) + "…" * 11 + "x", "too many ellipses"),
    (
        lines((9, "- point @ of the lists that people have"), (1, "some text")),
        lines((10, "- point @ of the lists that people have"), (1, "some text"), (0, "")),
        "too many bullet lines",
    ),
    (
        lines((3, "point @ of the lists that people have..."), (7, "and others of these words @")),
        lines((4, "point @ of the lists that people have..."), (6, "and others of these words @")),
        "too many lines end in an ellipsis",
    ),
    (words(80) + " 12345" * 20, words(79) + " 12345" * 21, "too few words with a letter"),
    (words(60), words(60).replace("the ", "teh "), "too few stop words"),
]


@pytest.mark.parametrize(("inside", "outside", "why"), GOPHER_QUALITY, ids=[row[2] for row in GOPHER_QUALITY])
def test_gopher_quality(inside, outside, why):
    assert reason("gopher_quality", inside) is None
    assert reason("gopher_quality", outside) == why


def test_gopher_quality_bounds_the_words():
    assert reason("gopher_quality", "the of " + "abcde " * 99_998) is None
    assert reason("gopher_quality", "the of " + "abcde " * 99_999) == "too many words"
    assert reason("gopher_quality", "", min_words=0) is None


def test_gopher_quality_counts_words_without_their_punctuation():
    assert reason("gopher_quality", words(49) + " —") == "too few words"
    assert reason("gopher_quality", '"The," (of) ' + words(60).removeprefix("the of ")) == "too few stop words"
    assert reason("gopher_quality", '"the," (of) ' + words(60).removeprefix("the of ")) is None


OTHERS = [f"{letter * 50}" for letter in "abcdefgh"]
REPETITION = [
    ("lines repeated", "\n".join(["same"] * 4 + OTHERS[:6]), "\n".join(["same"] * 5 + OTHERS[:8])),
    (
        "characters of repeated lines",
        "\n".join(["x" * 100] * 2 + ["y" * 100, "z" * 100, "a" * 96]),
        "\n".join(["x" * 100] * 2 + ["y" * 100, "z" * 100, "a" * 95]),
    ),
    ("paragraphs repeated", "\n\n".join(["same"] * 4 + OTHERS[:6]), "\n\n".join(["same"] * 5 + OTHERS[:8])),
    (
        "characters of repeated paragraphs",
        "\n\n".join(["x" * 100] * 2 + ["y" * 100, "z" * 100, "a" * 92]),
        "\n\n".join(["x" * 100] * 2 + ["y" * 100, "z" * 100, "a" * 91]),
    ),
]


@pytest.mark.parametrize(("why", "inside", "outside"), REPETITION, ids=[row[0] for row in REPETITION])
def test_gopher_repetition_of_lines_and_paragraphs(why, inside, outside):
    no_grams = {"top_grams": {}, "repeated_grams": {}}
    assert reason("gopher_repetition", inside, **no_grams) is None
    assert reason("gopher_repetition", outside, **no_grams) == why


def filled(text: str, size: int) -> str:
    """`text`, then words that stand once, so that it has `size` characters."""
    made = text
    for i in range(10_000):
        word = f" {i:04d}"
        if len(made) + 10 > size:
            return made + " " + "z" * (size - len(made) - 1)
        made += word
    raise AssertionError


@pytest.mark.parametrize(("n", "share"), [(2, 0.20), (3, 0.18), (4, 0.16)])
def test_the_most_frequent_grams_share(n, share):
    gram = " ".join("abcd"[:n])
    apart = "".join(f"{gram} s{i:03d} " for i in range(40)).strip()
    characters = 40 * len(gram)
    limits = {"top_grams": {n: share}, "repeated_grams": {}}
    inside = math.ceil(characters / share - 1e-9)
    assert reason("gopher_repetition", filled(apart, inside), **limits) is None
    assert reason("gopher_repetition", filled(apart, inside - 1), **limits) == f"most frequent {n}-gram"


@pytest.mark.parametrize(("n", "share"), [(5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10)])
def test_the_share_of_repeated_grams(n, share):
    gram = [f"w{i:02d}" for i in range(n)]
    apart = "".join(f"{' '.join(gram)} s{i:03d} " for i in range(11)).strip()
    characters = 10 * 3 * n
    limits = {"top_grams": {}, "repeated_grams": {n: share}}
    inside = math.ceil(characters / share - 1e-9)
    assert reason("gopher_repetition", filled(apart, inside), **limits) is None
    assert reason("gopher_repetition", filled(apart, inside - 1), **limits) == f"repeated {n}-grams"


def test_a_gram_that_stands_once_repeats_nothing():
    assert reason("gopher_repetition", "only these four words") is None
    assert reason("gopher_repetition", "word") is None


SENTENCES = "\n".join(f"This is line number {i} of it." for i in range(5))
C4 = [
    ("A line of words that ends here.", "A line of words that goes on", "lines without terminal punctuation"),
    ('He said "so be it."', "And then, who knows...", "lines without terminal punctuation"),
    ("Three words here.", "Two words.", "lines of too few words"),
    (f"A {'x' * 1000} is one.", f"A {'x' * 1001} is one.", "lines with a word too long"),
    ("We like Java and scripts.", "Please enable JavaScript now.", "lines with javascript"),
    ("They were terms for use.", "See our Terms of Use.", "lines about policies"),
]


@pytest.mark.parametrize(("inside", "outside", "why"), C4, ids=[row[1][:12] for row in C4])
def test_c4_of_lines(inside, outside, why):
    assert taken("c4", f"{SENTENCES}\n{inside}") == {}
    assert taken("c4", f"{SENTENCES}\n{outside}") == {why: 1}
    assert left("c4", f"{SENTENCES}\n{outside}") == SENTENCES


def test_c4_of_pages():
    assert reason("c4", SENTENCES) is None
    assert reason("c4", SENTENCES.rpartition("\n")[0]) == "too few sentences"
    assert reason("c4", "One of them. Two of them. Three of them! Four of them? Five of them.") is None
    assert reason("c4", "One of them. Two of them. Three of them! Four of them?") == "too few sentences"
    assert reason("c4", SENTENCES + " {") == "curly bracket"
    assert reason("c4", "Lorem ipsum dolor.\n" + SENTENCES) == "lorem ipsum"
    assert reason("c4", SENTENCES, bad_words=["number", "x"]) == "bad word"
    assert reason("c4", SENTENCES, bad_words=["numb"]) is None


def test_c4_cuts_citation_marks():
    assert left("c4", SENTENCES.replace("it.", "it.[12]")) == SENTENCES
    assert taken("c4", SENTENCES.replace("it.", "it.[12]")) == {"citation marks cut": 5}


def test_mc4_asks_for_long_lines():
    def page(length: int) -> str:
        return "\n".join("x" * (length - 5) + f" a {i}." for i in range(3))

    assert reason("c4", page(200), min_sentences=0, min_long_lines=3) is None
    assert reason("c4", page(199), min_sentences=0, min_long_lines=3) == "too few long lines"


LONG = "these are more than thirty characters of a line @"
FINEWEB = [
    ("too few lines end in punctuation", lines((3, f"{LONG}."), (22, LONG)), lines((2, f"{LONG}."), (15, LONG))),
    (
        "too many short lines",
        lines((67, "six words up to thirty @ ab c."), (33, f"{LONG}.")).replace("c.", "c"),
        lines((68, "six words up to thirty @ ab c."), (32, f"{LONG}.")).replace("c.", "c"),
    ),
    (
        "characters of repeated lines",
        lines((98, f"{LONG}.")) + f"\n{'twice '.ljust(50, 'x')}." * 2,
        lines((97, f"{LONG}.")) + f"\n{'twice '.ljust(51, 'x')}." * 2,
    ),
]


def test_fineweb_borders():
    for why, inside, outside in FINEWEB:
        assert reason("fineweb", inside) is None, why
        assert reason("fineweb", outside) == why
    thirteen = "\n".join([f"{'x' * 28} one two three."] * 1 + [f"{'y' * 31} four{i} five." for i in range(3)])
    assert len(thirteen.split()) == 13
    assert reason("fineweb", thirteen) is None
    ten = (
        thirteen.replace(" one two three", " one two").replace(" four0 five", " four0").replace(" four1 five", " four1")
    )
    assert (len(ten.split()), ten.count("\n")) == (10, 3)
    assert reason("fineweb", ten) is None
    assert reason("fineweb", ten.replace(" one two", " one")) == "too many lines for its words"
    assert reason("fineweb", " \n") == "empty"


TEXT = "\n".join(f"a line of ten words that stay where they are {i}" for i in range(20))
DCLM = [
    ("ABCDEf ghi", "ABCDEF ghi", "lines of capitals"),
    ("ÀÉÎÕÜf ghi", "ÀÉÎÕÜÄ ghi", "lines of capitals"),
    ("2024 1", "2024", "lines that are a number"),
    ("3 like us", "3 likes", "lines that are a counter"),
    ("so 5.2M views", "5.2M views", "lines that are a counter"),
    ("two words", "word", "lines of too few words"),
    (
        "one two three four five six seven eight items in cart",
        "3 items in cart",
        "lines with a phrase of the page around",
    ),
    ("read more about it", "go on, Read more...", "lines with a phrase of the page around"),
    ("please sign-in", "Sign-in or up", "lines with a phrase of the page around"),
]


@pytest.mark.parametrize(("inside", "outside", "why"), DCLM, ids=[row[1][:12] for row in DCLM])
def test_dclm_of_lines(inside, outside, why):
    assert taken("dclm_lines", f"{TEXT}\n{inside}") == {}
    assert taken("dclm_lines", f"{TEXT}\n{outside}") == {why: 1}


def test_dclm_cuts_the_phrase_and_keeps_the_line():
    assert left("dclm_lines", f"{TEXT}\ngo on, Read more...") == f"{TEXT}\ngo on,"
    assert left("dclm_lines", f"{TEXT}\nitems in cart") == TEXT
    assert taken("dclm_lines", f"{TEXT}\none two three four five six seven eight items in cart") == {}


def test_dclm_drops_what_loses_more_than_a_twentieth():
    text = " ".join(f"word{i}" for i in range(95))
    assert reason("dclm_lines", text + "\nALL OF THESE GO AWAY") is None
    assert reason("dclm_lines", text + "\nALL OF THESE GO AWAY NOW") == "too many words in lines that go"


@pytest.mark.parametrize(
    ("unit", "text"), [("characters", "ä" * 9), ("bytes", "ä" * 4 + "x"), ("words", "a b\nc  d e f g h i")]
)
def test_length_bounds_are_included(unit, text):
    assert reason("length", text, **{f"min_{unit}": 9, f"max_{unit}": 9}) is None
    assert reason("length", text, **{f"min_{unit}": 10}) == f"too few {unit}"
    assert reason("length", text, **{f"max_{unit}": 8}) == f"too many {unit}"
    assert reason("length", text) is None


@pytest.mark.parametrize("letter", ["a", "ä"])
def test_symbol_ratios(letter):
    for sign, limit, why in (("%", 25, "too many symbols"), ("7", 15, "too many digits"), (" ", 25, "too much space")):
        assert reason("symbols", letter * (100 - limit) + sign * limit) is None
        assert reason("symbols", letter * (99 - limit) + sign * (limit + 1)) == why
    assert reason("symbols", "") is None


def test_boilerplate_takes_short_lines_only():
    text = "\n".join(f"a sentence that stands once, {i}" for i in range(5))
    for inside, outside, why in (
        ("click here " + "x" * 90, "click here " + "x" * 89, "lines with a known phrase"),
        ("\n".join(["Chapter I"] * 2), "\n".join(["Chapter I"] * 3), "headers and footers repeated"),
        ("\n".join(["word"] * 3), "\n".join(["two words"] * 3), "headers and footers repeated"),
    ):
        assert taken("boilerplate", f"{text}\n{inside}") == {}
        assert list(taken("boilerplate", f"{text}\n{outside}")) == [why]
    assert left("boilerplate", f"Page head\n{text}\nPage head\nPage head") == f"Page head\n{text}"
    assert reason("boilerplate", "Click here!\n\nSkip to content") == "nothing left"
