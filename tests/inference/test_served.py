"""A model that was handed out is all that serving needs, and says what dpal predict says."""

from __future__ import annotations

import json
import subprocess
import sys

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from fastapi.testclient import TestClient
from mlflow.models import Model
from mlflow.pyfunc.scoring_server import init

from dpal.runs.predict import open_model
from tests.inference.kept_models import MAKERS, as_json
from tests.variants import quick_and_slow

NEEDED = {"mlflow", "numpy", "pandas", "pillow", "pyarrow", "safetensors", "torch"}
# What dpal needs and a served model must not: blocked, not only not installed.
HEAVY = ("dpal", "prefect", "mlflow", "dvc", "opacus", "scipy", "sklearn", "cryptography",
         "sqlalchemy", "pydantic", "matplotlib", "dp_accounting", "typer", "fsspec")  # fmt: skip
ANSWER_ALONE = """
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy!r}:
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
folder = Path({folder!r})
sys.path.insert(0, str(folder / "code"))
(package,) = (folder / "code").iterdir()
import importlib
import pandas as pd
served = importlib.import_module(package.name + ".inference.served")
records = pd.read_pickle({records!r})
print(served.BundledModel(folder / "artifacts").answer(records).to_json())
"""


@pytest.fixture(scope="module", params=quick_and_slow(["table"], MAKERS))
def kept(request, tmp_path_factory):
    return MAKERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def server(kept):
    """MLflow's own application, without a socket."""
    with TestClient(init(mlflow.pyfunc.load_model(str(kept.folder)))) as client:
        yield client


def require_same(answers: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert list(answers.columns) == ["label", "class_name", "probability", "probabilities"]
    for name in ("label", "class_name"):
        assert answers[name].tolist() == expected[name].tolist()
    both = [np.stack(list(frame["probabilities"])) for frame in (answers, expected)]
    assert both[0] == pytest.approx(both[1], abs=1e-6)
    assert answers["probability"].tolist() == pytest.approx(both[1].max(axis=1), abs=1e-6)


def test_it_says_what_dpal_predict_says(kept):
    assert json.loads((kept.run / "calibration.json").read_text())["temperature"] != 1
    model = mlflow.pyfunc.load_model(str(kept.folder))
    columns = model.metadata.get_input_schema().input_names()
    require_same(model.predict(kept.records[columns]), kept.expected)


def test_it_says_the_same_over_http(kept, server):
    rows = as_json(kept.records.drop(columns="id", errors="ignore"))
    answer = server.post("/invocations", json={"dataframe_records": rows})
    assert answer.status_code == 200, answer.text
    require_same(pd.DataFrame(answer.json()["predictions"]), kept.expected)


def test_its_example_is_answered_and_is_nobodys(kept, server):
    sent = (kept.folder / "serving_input_example.json").read_text(encoding="utf-8")
    answer = server.post("/invocations", content=sent, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.text
    (said,) = answer.json()["predictions"]
    assert sum(said["probabilities"]) == pytest.approx(1)
    example = pd.DataFrame(Model.load(str(kept.folder)).load_input_example(str(kept.folder)))
    (row,) = as_json(example)
    columns = list(row)
    assert row not in as_json(kept.records[columns])


def test_a_column_that_is_not_there_is_one_sentence(kept, server):
    secret = {"colour": "nobody is to read this"}
    answer = server.post("/invocations", json={"dataframe_records": [secret]})
    assert answer.status_code == 400
    said = answer.json()["message"]
    for name in Model.load(str(kept.folder)).get_input_schema().input_names():
        assert name in said
    assert "\n" not in said and secret["colour"] not in answer.text


def test_a_cell_that_is_no_number_is_one_sentence(kept, server):
    row = as_json(kept.records.drop(columns="id", errors="ignore"))[0]
    if "age" not in row:
        pytest.skip("of a table alone")
    for given, status in (("75", 200), (75, 200), (None, 200), ("?", 200), ("old", 400)):
        answer = server.post("/invocations", json={"dataframe_records": [{**row, "age": given}]})
        assert answer.status_code == status, answer.text
    assert "'age'" in answer.json()["message"] and "old" not in answer.text


def test_a_threshold_moves_two_classes_and_is_refused_of_three(kept, server):
    rows = as_json(kept.records.drop(columns="id", errors="ignore").iloc[:40])
    answer = server.post(
        "/invocations", json={"dataframe_records": rows, "params": {"threshold": 0.2}}
    )
    said = answer.json()
    if len(kept.expected["probabilities"][0]) > 2:
        assert answer.status_code == 400 and "threshold" in said["message"]
        return
    second = [row[1] for row in kept.expected["probabilities"][:40]]
    assert [each["label"] for each in said["predictions"]] == [int(p > 0.2) for p in second]


def test_nothing_in_it_names_a_place_or_needs_what_no_index_has(kept):
    place = str(kept.folder.parent.parent)
    for path in kept.folder.rglob("*"):
        if path.is_file() and path.suffix not in (".safetensors", ".pyc"):  # made by loading it
            text = path.read_text(encoding="utf-8")
            assert place not in text and "/tmp" not in text, path
    lines = (kept.folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    names = {line.partition("==")[0] for line in lines}
    assert names - {"tokenizers"} == NEEDED
    versions = [line.partition("==")[2] for line in lines]
    assert all(versions) and not any("+" in version for version in versions)
    about = yaml.safe_load((kept.folder / "MLmodel").read_text(encoding="utf-8"))
    assert about["metadata"]["class_names"] == list(open_model(kept.run).class_names)


@pytest.mark.slow
@pytest.mark.parametrize("kept", MAKERS, indirect=True)
def test_it_answers_where_everything_else_is_blocked(kept, tmp_path):
    records = tmp_path / "records.pickle"
    kept.records.to_pickle(records)
    program = ANSWER_ALONE.format(heavy=HEAVY, folder=str(kept.folder), records=str(records))
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    require_same(pd.DataFrame(json.loads(done.stdout)).reset_index(drop=True), kept.expected)


def test_the_image_that_would_be_built_holds_the_model_alone(kept, tmp_path):
    """As far as it goes without Docker: the Dockerfile, and what it copies."""
    from mlflow.models.flavor_backend_registry import get_flavor_backend

    backend = get_flavor_backend(str(kept.folder), docker_build=True, env_manager="local")
    backend.generate_dockerfile(
        model_uri=str(kept.folder), output_dir=str(tmp_path), base_image="python:3.11-slim"
    )
    text = (tmp_path / "Dockerfile").read_text(encoding="utf-8")
    copied = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()}
    assert copied == {"Dockerfile", "model_dir"}
    assert f"COPY model_dir/{kept.folder.name} /opt/ml/model" in text
    assert str(kept.folder.parent) not in text
    packed = tmp_path / "model_dir" / kept.folder.name / "code"
    assert [path.name for path in packed.iterdir()] == [
        path.name for path in (kept.folder / "code").iterdir()
    ]
