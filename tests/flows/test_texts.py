"""A campaign on texts, from the tokenizer to the model that is served."""

from __future__ import annotations

from pathlib import Path

import mlflow
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.config.campaign import CampaignConfig
from dpal.errors import DataError
from dpal.runs.prepare_campaign import open_data
from dpal.runs.released_phase import reached
from flows.cli.plan_campaign import CampaignPlanViews
from tests.flows.calling import call, finished
from tests.models.tiny_bert import SIZES, write_folder

FEATURES = {
    "model__name": "logistic",
    "data__extractor": "backbone",
    "data__backbone": {"model": "text_classifier", "weights": "bert"},
}
TEXT = {"model__name": "text_classifier", "model__weights": "bert", "model__max_tokens": 8}


def write_texts(path: Path, rows: int, *, seed: int) -> None:
    """Texts that say whether they are good, among words that say nothing."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, rows)
    filler = generator.choice(["the", "film", "a", "was", "."], (rows, 2))
    texts = [f"{a} {('bad', 'good')[label]} {b}" for (a, b), label in zip(filler, labels)]  # noqa: B905
    ids = [f"{path.stem}-{i:05d}" for i in range(rows)]
    pq.write_table(pa.table({"id": ids, "text_a": texts, "label": labels}), path)


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "bert")
    write_texts(tmp_path / "pool.parquet", 400, seed=1)
    write_texts(tmp_path / "validation.parquet", 200, seed=2)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("way", ["last layers", "fixed features"])
def test_a_campaign_on_texts_runs_and_its_model_is_served(place, small, orchestrated, way):
    config: CampaignConfig = small(
        **(TEXT if way == "last layers" else FEATURES),
        name="texts",
        runtime__mlflow_uri=f"sqlite:///{place / 'mlflow.sqlite'}",
        acquisition="entropy",
        schedule__initial=60,
        schedule__queries=[20],
        schedule__epochs_per_phase=2,
    )
    folder = finished(config)
    assert config.runtime.mlflow_uri is not None
    mlflow.set_tracking_uri(config.runtime.mlflow_uri)
    (logged,) = mlflow.search_logged_models(experiment_ids=["1"], output_format="list")
    said = call("predict", str(folder.root), "validation.parquet", "--to", "said.parquet")
    assert said.returncode == 0, said.stderr
    for public in (place / "bert").iterdir():  # the model has what it needs with it
        public.unlink()
    served = mlflow.pyfunc.load_model(logged.model_uri)
    validation = pq.read_table(place / "validation.parquet").to_pandas()
    answers = served.predict(validation[["text_a"]])
    assert answers["label"].tolist() == pq.read_table("said.parquet")["label"].to_pylist()
    right = float((answers["label"] == validation["label"]).mean())
    assert right == pytest.approx(reached(folder)["validation_accuracy"])
    assert answers["probability"].nunique() > 10


@pytest.mark.slow
def test_a_plan_is_shown_of_a_model_that_reads_texts(place, small):
    planned = CampaignPlanViews().plan(small(**TEXT, name="texts"), explained=True)
    assert planned.record["explanation"]


def test_what_does_not_fit_is_refused_before_anything_is_spent(place, small):
    with pytest.raises(DataError, match="holds texts"):
        open_data(small())
    (place / "bert" / "tokenizer_config.json").write_text("no JSON")
    with pytest.raises(DataError, match="JSON; restore"):
        open_data(small(**TEXT))
    write_folder(place / "bert", vocab_size=SIZES["vocab_size"] - 2)
    (place / "bert" / "tokenizer_config.json").unlink()
    with pytest.raises(DataError, match=r"16 tokens .*14"):
        open_data(small(**TEXT))
