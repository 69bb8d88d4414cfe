from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.sources import Content, Role, open_source
from dpal.errors import LabelError
from dpal.labeling.label_form import make_form, read_form
from dpal.labeling.label_studio_questions import Question
from dpal.labels import Task


def source_of(tmp_path, **columns):
    pq.write_table(pa.table({"id": ["a", "b"], **columns}), tmp_path / "pool.parquet")
    return open_source(tmp_path / "pool.parquet", Role.POOL, label_column="label")


def png() -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(content, format="PNG")
    return content.getvalue()


def test_pictures_are_in_the_text(tmp_path):
    source = source_of(tmp_path, image=[png(), png()])
    question = Question.about(source, classes=2, class_names=["cat", "dog"])
    form = make_form(question, source, ["b", "a"])
    assert form.description.count("![](data:image/png;base64,") == 2
    assert form.schema["required"] == ["record_1", "record_2"]
    assert form.schema["properties"]["record_1"]["enum"] == ["cat", "dog"]
    read = read_form(question, {"record_1": "dog", "record_2": "cat"}, ["b", "a"])
    assert read == {"b": 1, "a": 0}


def test_a_text_is_shown_and_not_obeyed(tmp_path):
    source = source_of(tmp_path, text_a=["<img src=x onerror=alert(1)>\n# big", "two"])
    question = Question.about(source, classes=2, class_names=[])
    shown = make_form(question, source, ["a"]).description
    assert "\n    <img src=x onerror=alert(1)>\n    # big" in shown


def test_several_labels_and_none_of_them():
    question = Question(
        content=Content.FEATURES, texts=(), choices=("rain", "dusk"), task=Task.MULTI_LABEL
    )
    values = {"record_1": ["dusk"], "record_2": [question.none]}
    assert read_form(question, values, ["a", "b"]) == {"a": (0, 1), "b": (0, 0)}
    with pytest.raises(LabelError, match="valid answer"):
        read_form(question, {"record_1": ["dusk"]}, ["a", "b"])
