"""Teachers who object to a public model, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import flows_at, write_blobs
from tests.flows.calling import call
from tests.flows.voting import checked, releases, write_settings


@pytest.fixture
def _there(prefect_api, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("private", 600), ("public", 120), ("validation", 90), ("tuning", 60)):
        write_blobs(tmp_path / f"{name}.parquet", rows, seed=len(name), prefix=name)
    with flows_at(prefect_api):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("_there")
def test_it_is_planned_run_reported_and_verified():
    file = write_settings(
        "objected",
        teachers={"count": 30, "epochs": 10, "tuning": "tuning.parquet"},
        voting={"queries": 80, "objections": 6},
    )
    planned = call("plan", file, "--explain")
    assert planned.returncode == 0, planned
    assert "6 queries" in planned.stdout
    assert not Path("artifacts/objected").exists()
    ran = call("run", file)
    assert ran.returncode == 0, ran
    assert releases("objected") == ["votes/1"]
    again = call("run", file)
    assert again.returncode == 0, again
    assert releases("objected") == ["votes/1"]
    assert checked("objected").returncode == 0
    report = Path("artifacts/objected/report.md").read_text(encoding="utf-8")
    assert "object to a public model" in report
    assert call("status", "artifacts/objected").returncode == 0
