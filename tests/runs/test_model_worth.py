"""What a released model is worth, told wherever a run is told: reports, status, its last words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpal
from dpal.config.campaign import parse_config
from dpal.files.artifacts import CampaignFolder
from dpal.reports.report import Table
from dpal.reports.validation_figures import against_majority, figure_in, worthless
from dpal.runs.kinds import recorded_kind
from dpal.runs.make_report import report_of
from dpal.runs.released_phase import released_figures
from tests.conftest import mislabel, small_values
from tests.flows.calling import call

BRIEF: dict[str, Any] = {"acquisition": "random", "schedule__queries": []}


def run(**changes: Any) -> tuple[CampaignFolder, dict[str, Any]]:
    folder = dpal.run(parse_config(small_values(**{**BRIEF, **changes})))
    released = released_figures(folder)
    assert released is not None
    return folder, released


@pytest.mark.usefixtures("workplace")
def test_a_good_model_is_told_class_by_class() -> None:
    folder, released = run()
    assert worthless(released) is None
    told = {table.title: table for table in report_of(folder).blocks(Table)}
    rows = [row for table in told.values() for row in table.rows]
    assert sum(int(about["records"]) for about in released["validation_classes"]) == 300
    recalls = [about["recall"] for about in released["validation_classes"]]
    assert figure_in(released, "balanced_accuracy") == pytest.approx(np.mean(recalls))
    assert all(any(f"{100 * recall:.2f} %" in row for row in rows) for recall in recalls)
    assert all(good for good, _ in report_of(folder).verdict.points)


@pytest.mark.parametrize("changes", [{}, {"validation": {"protected": True, "epsilon": 8.0}}])
def test_a_worthless_model_is_called_so_wherever_it_is_told(workplace: Path, changes) -> None:
    mislabel(workplace / "validation.parquet")
    folder, released = run(**changes)
    said = worthless(released)
    assert said is not None and "300 records" in said
    assert (False, said) in report_of(folder).verdict.points
    assert said in folder.report.read_text(encoding="utf-8")
    assert said in recorded_kind(folder).use_cases().shown(folder)
    compared = against_majority(released)
    assert compared is not None and compared.majority == pytest.approx(0.86, abs=0.1)
    shown = call("status", str(folder.root))
    assert f"{100 * compared.majority:.2f}" in shown.stdout.replace("\n", "")


@pytest.mark.usefixtures("workplace")
def test_of_protected_records_noisy_counts_alone_are_told() -> None:
    folder, released = run(validation={"protected": True, "epsilon": 2.0})
    assert "validation_macro_auc" not in released
    assert all(about["auc"] is None for about in released["validation_classes"])
    released_counts = json.loads(folder.phase(0).validation.read_text(encoding="utf-8"))["counts"]
    rows = [max(0, sum(row)) for row in released_counts]
    assert [about["records"] for about in released["validation_classes"]] == rows
    assert released["validation_majority"] == min(1.0, max(rows) / 300)
