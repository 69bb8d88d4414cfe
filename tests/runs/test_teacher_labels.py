"""Teachers that label a campaign's records read them as they learned to, however it reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import dpal
from dpal.config.campaign import parse_config
from dpal.data.readers import records_of
from dpal.errors import LabelError
from dpal.models.build_model import build_model
from dpal.runs import teacher_labels, teachers
from dpal.runs.teachers import cast_votes
from tests.conftest import nothing_released, small_values, write_blobs
from tests.flows.test_texts import TEXT, write_texts
from tests.flows.voting import entries, settings
from tests.models.tiny_bert import write_folder

pytestmark = pytest.mark.slow

TEACHERS = {"kind": "teachers", "teachers": "votes"}
VOTING = {"queries": 20, "blocks": 6, "block_size": 60}
PRIVACY = {"epsilon": 30.0, "delta": 1e-4}
READS = {"name": "text_classifier", "weights": "bert", "max_tokens": 8}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where teachers of texts are trained, beside the pool of a campaign."""
    place = tmp_path_factory.mktemp("texts")
    for number, name in enumerate(("private", "public", "validation", "pool")):
        write_texts(place / f"{name}.parquet", 240, seed=number)
    write_folder(place / "bert")
    other = write_folder(place / "other")
    words = (other / "vocab.txt").read_text().split()
    (other / "vocab.txt").write_text("\n".join([*words[:5], *reversed(words[5:])]) + "\n")
    votes = settings("votes", model=READS, voting=VOTING, privacy=PRIVACY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        dpal.run(dpal.settings(votes))
    return place


def buys(**overrides: Any) -> dict[str, Any]:
    schedule = {"initial": 30, "queries": [10], "batch_size": 15, "epochs_per_phase": 1}
    return small_values(labeler=TEACHERS, schedule=schedule, privacy__delta=1e-4, **overrides)


def test_words_are_numbered_as_the_teachers_number_them(asked, monkeypatch):
    monkeypatch.chdir(asked)
    fed = []

    def listen(ensemble, inputs, **how):
        fed.append((ensemble, inputs))
        return cast_votes(ensemble, inputs, **how)

    monkeypatch.setattr(teacher_labels, "cast_votes", listen)
    config = parse_config(buys(**{**TEXT, "model__weights": "other"}))
    dpal.run(config)
    assert len(fed) == 2
    texts = pq.read_table("pool.parquet", columns=["text_a"]).to_struct_array().combine_chunks()
    for ensemble, inputs in fed:
        learned = ensemble.pool.encoding.encode(texts, rows=None)
        assert rows_of(inputs) <= rows_of(learned)


def test_no_record_is_read_or_voted_on_beside_another(asked, monkeypatch):
    """Who shares a batch with whom would tell, by the last bits of a label, who was selected."""
    monkeypatch.chdir(asked)
    read, seen = [], []

    def reading(source, column, *, rows):
        read.append(len(column))
        return records_of(source, column, rows=rows)

    def built(spec):
        model = build_model(spec)
        model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
        return model

    monkeypatch.setattr(teachers, "records_of", reading)
    monkeypatch.setattr(teachers, "build_model", built)
    dpal.run(parse_config(buys(name="alone", **TEXT)))
    assert len(read) > 30
    assert {*read} == {*seen} == {1}


def rows_of(tokens: torch.Tensor) -> set[tuple[int, ...]]:
    return {tuple(record.flatten().tolist()) for record in tokens}


def test_records_of_another_kind_are_refused_before_anything_is_held(asked, monkeypatch, tmp_path):
    monkeypatch.chdir(asked)
    data = {}
    for role in ("pool", "validation"):
        path = write_blobs(tmp_path / f"{role}.parquet", 300, seed=len(role), prefix=role)
        table = pq.read_table(path)
        two = pa.array(table["label"].to_numpy() % 2)
        pq.write_table(table.set_column(2, "label", two), path)
        data[role] = str(path)
    with pytest.raises(LabelError, check=nothing_released):
        dpal.run(parse_config(buys(name="numbers", data=data)))
    assert not entries("numbers")
