"""A released model's temperature: where it comes from, where it goes, and who does without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import dpal
from dpal.canonical import file_digest
from dpal.config.campaign import parse_config
from dpal.data.importing.settings import ImportSettings
from dpal.data.labeling_state import load_all
from dpal.data.sources import Role, open_source
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.labels import Task
from dpal.runs.execute import execute_run
from dpal.runs.kinds import parse_any
from dpal.runs.make_report import report_of
from dpal.runs.predict import open_model, predict
from dpal.runs.released_phase import released_calibration
from dpal.training.calibration import at_temperature, fit_temperature
from dpal.training.evaluation import probabilities
from tests.conftest import mislabel, small_values
from tests.flows import voting
from tests.flows.calling import call

BRIEF: dict[str, Any] = {"acquisition": "random", "schedule__queries": []}


def said(folder: CampaignFolder, target: str, **how: Any) -> tuple[np.ndarray, str]:
    """Probabilities of the validation records, and the temperature that the file names."""
    predict(open_model(folder.root), Path("validation.parquet"), Path(target), ImportSettings(),
            **how)  # fmt: skip
    table = pq.read_table(target)
    about_it = table.schema.metadata[b"temperature"].decode()
    return np.array(table["probabilities"].to_pylist()), about_it


@pytest.fixture
def doubtful(workplace: Path) -> CampaignFolder:
    """A sure model, judged on records of which many are not what they seem."""
    mislabel(workplace / "validation.parquet")
    return dpal.run(parse_config(small_values(**BRIEF)))


def test_the_temperature_is_that_of_the_public_validation_set(doubtful):
    told = released_calibration(doubtful)
    model = open_model(doubtful.root)
    source = open_source(Path("validation.parquet"), Role.VALIDATION, label_column="label")
    inputs, labels = load_all(source)
    guesses = probabilities(model.build(), inputs, physical_batch=256)
    fitted = fit_temperature(Task.SINGLE_LABEL, guesses, labels.numpy())
    assert told is not None and told["model"] == file_digest(doubtful.phase(0).model)
    assert told["temperature"] == pytest.approx(fitted.temperature, rel=1e-3)
    assert told["temperature"] > 1.2 and told["error_after"] < told["error"]
    assert told["records"] == 300
    raw, about = said(doubtful, "raw.parquet", calibrated=False)
    assert np.array_equal(raw, guesses)
    assert about == "1"
    mended, about = said(doubtful, "mended.parquet")
    expected = at_temperature(Task.SINGLE_LABEL, guesses, told["temperature"])
    assert np.allclose(mended, expected) and not np.allclose(mended, raw)
    assert float(about) == pytest.approx(told["temperature"], rel=1e-5)
    assert np.array_equal(mended.argmax(axis=1), raw.argmax(axis=1))


def test_weights_and_certificate_know_nothing_of_it(doubtful):
    weights, certificate = doubtful.phase(0).model, doubtful.certificate
    before = [path.read_bytes() for path in (weights, certificate, doubtful.calibration)]
    assert b"temperature" not in certificate.read_bytes()
    again = dpal.run(parse_config(small_values(**BRIEF)))
    assert [path.read_bytes() for path in (weights, certificate, again.calibration)] == before
    assert call("verify", str(doubtful.root), "--ledger", str(doubtful.root),
                "--model", str(weights), "--key", "own").returncode == 0  # fmt: skip


def test_report_and_card_say_how_far_probabilities_can_be_trusted(doubtful):
    told = released_calibration(doubtful) or {}
    card = json.loads(doubtful.cards[1].read_text(encoding="utf-8"))
    assert card["calibration"]["error"] == told["error"]
    text = " ".join(map(str, report_of(doubtful).blocks(str)))
    for page in (text, doubtful.cards[0].read_text(encoding="utf-8")):
        assert f"{100 * told['error']:.2f} %" in page
        assert f"{100 * told['error_after']:.2f} %" in page
    assert doubtful.calibration in doubtful.reports


def test_without_a_temperature_predictions_are_what_they_were(doubtful):
    raw, _ = said(doubtful, "raw.parquet", calibrated=False)
    told = json.loads(doubtful.calibration.read_text(encoding="utf-8"))
    doubtful.calibration.write_text(json.dumps({**told, "model": "0" * 64}), encoding="utf-8")
    assert open_model(doubtful.root).temperature is None, "it is of another model"
    doubtful.calibration.unlink()
    bare, about = said(doubtful, "bare.parquet")
    assert np.array_equal(bare, raw) and about == "1"
    doubtful.calibration.write_text("{", encoding="utf-8")
    with pytest.raises(DataError):
        open_model(doubtful.root)


def test_the_command_leaves_it_out_on_demand(doubtful):
    shown = {}
    for name, more in (("with", ()), ("without", ("--uncalibrated",))):
        target = f"{name}.parquet"
        asked = ("predict", str(doubtful.root), "validation.parquet", "--to", target, "--json")
        done = call(*asked, *more)
        assert done.returncode == 0, done.stderr
        shown[name] = json.loads(done.stdout)["temperature"]
    assert shown["without"] == 1.0 < shown["with"]


@pytest.mark.usefixtures("workplace")
def test_of_a_protected_validation_set_none_is_fitted() -> None:
    folder = dpal.run(parse_config(small_values(**BRIEF, validation={"protected": True})))
    assert not folder.calibration.exists()
    assert open_model(folder.root).temperature is None
    assert json.loads(folder.cards[1].read_text(encoding="utf-8"))["calibration"] is None
    told = " ".join(map(str, report_of(folder).blocks(str)))
    assert "temperature" in told and "protected" in told


def test_several_labels_have_one_temperature(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    voting.write_data(Path())
    folder = execute_run(parse_any(voting.settings("votes")))
    told = released_calibration(folder)
    assert told is not None and isinstance(told["temperature"], float)
    raw, _ = said(folder, "raw.parquet", calibrated=False)
    mended, _ = said(folder, "mended.parquet")
    assert np.allclose(mended, at_temperature(Task.MULTI_LABEL, raw, told["temperature"]))
    assert np.array_equal(mended > 0.5, raw > 0.5)
