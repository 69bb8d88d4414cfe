"""Runs that go in one piece are in MLflow from their first release on, and end there as ours."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Run

from dpal.errors import LedgerError, TrainingStopped
from dpal.ledger.folder_lock import lock_folder
from tasks.generic_steps import advance, certify, prepare, tracked
from tasks.tracking.mlflow_ledger import SPENT
from tasks.tracking.whole_runs import track_finished, track_spent, whole_run_tracked
from tasks.write_reports import write_report
from tests.tasks.test_generic_steps import config as config  # a fixture


def runs_in_mlflow() -> list[Run]:
    mlflow.set_tracking_uri(f"sqlite:///{Path('artifacts/mlflow.sqlite').resolve()}")
    return list(mlflow.search_runs(experiment_names=["dpal"], output_format="list"))


def test_what_was_spent_is_there_before_the_run_is_done(config):
    run = prepare.fn(config)
    run.runtime.artifacts.mkdir()
    track_spent.fn(run)
    assert runs_in_mlflow() == []
    assert not run.folder.ledger.exists(), "a look makes no ledger"
    with lock_folder(run.folder.root):
        run = advance.fn(run)
    track_spent.fn(run)
    [begun] = runs_in_mlflow()
    assert begun.info.status == "RUNNING"
    assert begun.data.tags["dpal.spent"].startswith(f"{run.certified.epsilon:.4f} of 2")
    artifact = f"runs:/{begun.info.run_id}/{SPENT}"
    assert Path(mlflow.artifacts.download_artifacts(artifact)).is_file()
    for error, status in ((LedgerError("it is lost"), "FAILED"), (TrainingStopped("x"), "KILLED")):
        with pytest.raises(type(error)), whole_run_tracked(run):
            assert runs_in_mlflow()[0].info.status == "RUNNING"
            raise error
        assert runs_in_mlflow()[0].info.status == status
    with lock_folder(run.folder.root), whole_run_tracked(run):
        certify.fn(run)
        write_report.fn(run)
        track_finished.fn(run, tracked(run), "")
    track_spent.fn(run)
    [ended] = runs_in_mlflow()
    assert (ended.info.run_id, ended.info.status) == (begun.info.run_id, "FINISHED")
    assert ended.data.tags["dpal.state"] == "finished"
    assert ended.info.start_time == ended.info.end_time, "a day and no moment"
