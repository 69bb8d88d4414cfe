"""What a run promised, spent and reached, as files for DVC: the certificate's and the phases'."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import dpal
from dpal.certificate.read_and_seal import read_certificate
from dpal.errors import DataError
from dpal.files.artifacts import CampaignFolder
from dpal.runs.dvc_metrics_files import write_experiment_files
from dpal.runs.released_phase import released_phase
from tests.conftest import small_values


def test_figures_are_those_of_the_certificate_and_of_the_released_phase(workplace):
    folder = dpal.run(dpal.settings(small_values(release="best")))
    figures, table, *pictures = write_experiment_files(folder, Path("made") / "results")
    assert pictures and all(picture.stat().st_size > 5_000 for picture in pictures)
    told = json.loads(figures.read_text(encoding="utf-8"))
    certificate = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    assert told["epsilon"]["spent"] == certificate["epsilon"][certificate["promise"]["accountant"]]
    promise = {key: certificate["promise"][key] for key in ("delta", "adjacency", "unit")}
    assert promise.items() <= told["epsilon"].items()
    phases, number = folder.finished_phases(), released_phase(folder)
    assert told["released_phase"] == number
    assert told["validation"]["accuracy"] == phases[number]["validation_accuracy"]
    assert not any("class" in name for name in told["validation"])
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [int(row["labels"]) for row in rows] == [phase["labels"] for phase in phases]
    assert [float(row["validation"]) for row in rows] == [
        phase["validation_accuracy"] for phase in phases
    ]
    spent = [float(row["epsilon"]) for row in rows]
    assert spent == sorted(spent)
    assert spent[-1] <= told["epsilon"]["promised"]


def test_a_run_without_a_finished_phase_has_no_figures_and_no_file(tmp_path):
    folder = CampaignFolder(tmp_path / "new")
    with pytest.raises(DataError):
        write_experiment_files(folder, tmp_path / "results")
    assert not (tmp_path / "results").exists()
