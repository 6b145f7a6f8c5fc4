"""Language identification with the model that ships in a package."""

from __future__ import annotations

import pytest
from tests.data.filters.verdicts import reason

from cairn.data.filters.language import identify

pytestmark = pytest.mark.unit

SAMPLES = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft begabt.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y están dotados de razón.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione.",
    "nl": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met verstand.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są obdarzeni rozumem.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом.",
    "zh": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "ar": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق، وقد وهبوا عقلا وضميرا.",
    "fi": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu järki.",
}


@pytest.mark.parametrize("language", SAMPLES)
def test_sentences_are_told_apart(language):
    found, score = identify(SAMPLES[language].replace(". ", ".\n"))
    assert found == language
    assert 0.65 <= score <= 1


def test_only_the_wanted_languages_stay():
    assert reason("language", SAMPLES["en"]) is None
    assert reason("language", SAMPLES["de"]) == "another language"
    assert reason("language", SAMPLES["de"], languages=["de", "fr"]) is None
    assert reason("language", " \n ") == "another language"


def test_the_score_is_a_border():
    _, score = identify(SAMPLES["en"])
    assert reason("language", SAMPLES["en"], min_score=score) is None
    assert reason("language", SAMPLES["en"], min_score=min(1.0, score + 1e-6)) == "language not sure"


def test_a_long_document_is_judged_by_its_start_middle_and_end():
    long = (SAMPLES["de"] + " ") * 40
    assert reason("language", SAMPLES["en"] * 3 + long) == "another language"
    assert reason("language", long, languages=["de"]) is None
