"""Models whose source imports dpal itself are loaded, and say what they said."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.inference.kept_models import MAKERS

SOURCE = Path(__file__).with_name("served_before.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "column"),
    [("table", "features"), ("texts", "text_a")],
)
def test_a_model_of_before_answers(kind, column, tmp_path):
    kept = MAKERS[kind](tmp_path)
    named = {"weights": "model.safetensors", "model_spec": "model_spec.json"}
    files = {name: kept.folder / "artifacts" / file for name, file in named.items()}
    if kind == "texts":
        files["backbone"] = kept.folder / "artifacts" / "backbone"
    mlflow.pyfunc.save_model(
        tmp_path / "before",
        python_model=str(SOURCE),
        artifacts={name: str(path) for name, path in files.items()},
        pip_requirements=["dpal==0.2.0"],
    )
    pool = pq.read_table(tmp_path / "pool.parquet").to_pandas().set_index("id")
    model = mlflow.pyfunc.load_model(str(tmp_path / "before"))
    said = model.predict(pd.DataFrame({column: list(pool[column])}))
    assert list(said.columns) == ["label", "class_name", "probability"]
    expected = kept.expected.set_index("id").loc[pool.index]
    assert said["class_name"].tolist() == expected["class_name"].tolist()
    assert said["probability"].tolist() == pytest.approx(expected["probability"].tolist(), abs=1e-6)
