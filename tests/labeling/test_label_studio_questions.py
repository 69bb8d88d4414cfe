from __future__ import annotations

from xml.etree import ElementTree

import pytest

from dpal.data.sources import Content
from dpal.labeling.label_studio_questions import Question
from dpal.labels import Task


def question(content=Content.IMAGE, *, task=Task.SINGLE_LABEL, choices=("cat", "dog"), texts=()):
    return Question(content=content, texts=texts, choices=choices, task=task)


def said(*choices: str, field: str = "label"):
    """An annotation as the server exports it."""
    region = {"id": "x", "type": "choices", "from_name": field, "to_name": "record"}
    return [{**region, "value": {"choices": list(choices)}}]


@pytest.mark.parametrize(
    ("content", "texts", "shown"),
    [
        (Content.IMAGE, (), [("Image", "record", "$image")]),
        (Content.FEATURES, (), [("Text", "record", "$record")]),
        (Content.TEXT, ("text_a",), [("Text", "text_a", "$text_a")]),
        (
            Content.TEXT,
            ("text_a", "text_b"),
            [("Text", "text_a", "$text_a"), ("Text", "text_b", "$text_b")],
        ),
    ],
)
def test_the_page_shows_the_record_and_the_choices(content, texts, shown):
    names = ("cat", 'a "b" & <c>')
    page = ElementTree.fromstring(question(content, texts=texts, choices=names).labeling_config())
    *parts, choices = page
    assert [(one.tag, one.get("name"), one.get("value")) for one in parts] == shown
    assert choices.get("toName") == shown[0][1]
    assert (choices.get("choice"), choices.get("required")) == ("single", "true")
    assert [one.get("value") for one in choices] == list(names)


@pytest.mark.parametrize(
    ("choices", "keys"),
    [
        (tuple("0123456789"), list("0123456789")),  # else the key 1 would mean the digit 0
        (("a", "b"), ["a", "b"]),
        (("cat", "dog"), [None, None]),
        (("1", "many"), [None, None]),
    ],
)
def test_a_choice_of_one_character_has_it_for_a_key(choices, keys):
    page = ElementTree.fromstring(question(choices=choices).labeling_config())
    assert [one.get("hotkey") for one in page[-1]] == keys


def test_whoever_decides_sees_what_was_said():
    page = ElementTree.fromstring(question().labeling_config(decides=True))
    assert [one.tag for one in page] == ["Image", "Header", "Choices"]


def test_one_class_is_read():
    assert question().read(said("dog")) == 1
    wrong: list
    for wrong in (said("bird"), said("cat", "dog"), said(), [], said("dog", field="other")):
        assert question().read(wrong) is None


def test_none_of_several_labels_is_an_answer_of_its_own():
    taken = question(task=Task.MULTI_LABEL, choices=("rain", "dusk")).none
    several = question(task=Task.MULTI_LABEL, choices=("rain", "dusk", taken))
    assert several.none == f"({taken})"
    assert several.read(said("rain", taken)) == (1, 0, 1)
    assert several.read(said(several.none)) == (0, 0, 0)
    assert several.read([]) is None
    assert several.read(said(several.none, "rain")) is None
    page = ElementTree.fromstring(several.labeling_config())
    assert page[-1].get("choice") == "multiple"
    assert page[-1][-1].get("value") == several.none


def test_labels_have_names():
    several = question(task=Task.MULTI_LABEL, choices=("rain", "dusk"))
    assert several.name_of((1, 1)) == "rain + dusk"
    assert several.name_of((0, 0)) == several.none
    assert question().name_of(1) == "dog"
