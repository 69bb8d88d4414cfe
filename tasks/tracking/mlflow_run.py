"""A run in MLflow whose times are a day: that on which the plan was held, as in the ledger.

MLflow's own functions write the present moment with everything. How long a campaign takes follows
how many labels it bought, which may be confidential.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from matplotlib.figure import Figure
from mlflow.data.dataset import Dataset
from mlflow.entities import Dataset as DatasetRecord
from mlflow.entities import DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.tracking.context.registry import resolve_tags
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_LOGGED_ARTIFACTS

from dpal.ledger.entries import Entry
from dpal.ledger.stamped_day import day_held, today_in_utc
from tasks.tracking.experiment import experiment_id

RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run that is being told of.

    Attributes:
      run_id: its number in MLflow.
      at: milliseconds since 1970, for all that is logged.
    """

    run_id: str
    at: int

    def log_params(self, values: Mapping[str, Any]) -> None:
        """Logs parameters; the same again changes nothing."""
        listed = [Param(key, str(value)) for key, value in values.items()]
        mlflow.MlflowClient().log_batch(self.run_id, params=listed)

    def log_metrics(self, values: Mapping[str, float], *, step: int = 0) -> None:
        """Logs figures; the same again adds no second point."""
        listed = [Metric(key, float(value), self.at, step) for key, value in values.items()]
        mlflow.MlflowClient().log_batch(self.run_id, metrics=listed)

    def set_tags(self, values: Mapping[str, Any]) -> None:
        """Sets tags."""
        listed = [RunTag(key, str(value)) for key, value in values.items()]
        mlflow.MlflowClient().log_batch(self.run_id, tags=listed)

    def log_dict(self, values: dict[str, Any], name: str) -> None:
        """Logs a JSON file."""
        mlflow.MlflowClient().log_dict(self.run_id, values, name)

    def log_figure(self, figure: Figure, name: str) -> None:
        """Logs a figure."""
        mlflow.MlflowClient().log_figure(self.run_id, figure, name)

    def log_files(self, *paths: Path) -> None:
        """Logs files as they are."""
        for path in paths:
            mlflow.MlflowClient().log_artifact(self.run_id, str(path))

    def log_folder(self, path: Path, name: str) -> None:
        """Logs the files of a folder."""
        mlflow.MlflowClient().log_artifacts(self.run_id, str(path), name)

    def log_table_once(self, table: pd.DataFrame, name: str) -> None:
        """Logs a table, unless it is there: MLflow appends to one that is."""
        client = mlflow.MlflowClient()
        if all(file.path != name for file in client.list_artifacts(self.run_id)):
            client.log_table(self.run_id, table, name)

    def log_anew(
        self, tables: Mapping[str, pd.DataFrame], figure: Figure, place: str
    ) -> dict[str, str]:
        """Logs tables and a figure in place of those that are there, by few calls.

        Args:
          tables: by name. MLflow itself appends to one that is there.
          figure: beside them.
          place: of the figure, as folder/name.png.

        Returns:
          Tags by which MLflow knows the tables; to be set with others.
        """
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, table in tables.items():
                text = table.to_json(orient="split", index=False)
                (root / name).write_text(text, encoding="utf-8")
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(root / place)
            mlflow.MlflowClient().log_artifacts(self.run_id, folder)
        listed = [{"path": name, "type": "table"} for name in tables]
        return {MLFLOW_LOGGED_ARTIFACTS: json.dumps(listed)}

    def log_dataset(self, dataset: Dataset, context: str) -> None:
        """Logs which data set was used for what."""
        record = DatasetRecord(**dataset.to_dict())
        given = DatasetInput(dataset=record, tags=[InputTag(MLFLOW_DATASET_CONTEXT, context)])
        mlflow.MlflowClient().log_inputs(self.run_id, datasets=[given])

    def go_on(self) -> None:
        """Sets the run running again, if it had ended."""
        client = mlflow.MlflowClient()
        if client.get_run(self.run_id).info.status != RUNNING:
            client.update_run(self.run_id, status=RUNNING)

    def end(self, status: str) -> None:
        """Ends the run, on the day on which it began."""
        mlflow.MlflowClient().set_terminated(self.run_id, status, end_time=self.at)


def open_tracked_run(
    existing: Run | None, name: str, tags: Mapping[str, Any], *, day: str
) -> TrackedRun:
    """Makes a run, or goes on with one, and sets its tags.

    Args:
      existing: the run, if there is one.
      name: of a new one.
      tags: of either.
      day: that all of its times shall be, as YYYY-MM-DD.
    """
    client, moment = mlflow.MlflowClient(), noon(day)
    if existing is None:
        described = resolve_tags({key: str(value) for key, value in tags.items()})
        made = client.create_run(experiment_id(), moment, described, name)
        return TrackedRun(run_id=made.info.run_id, at=moment)
    run = TrackedRun(run_id=existing.info.run_id, at=moment)
    run.set_tags(tags)
    run.go_on()
    return run


@contextmanager
def finished_run(
    existing: Run | None, name: str, tags: Mapping[str, Any], *, day: str
) -> Iterator[TrackedRun]:
    """The same, ended after the block: finished, or failed where it raised."""
    run = open_tracked_run(existing, name, tags, day=day)
    try:
        yield run
    except BaseException:
        with suppress(Exception):  # it may be MLflow that failed
            run.end(FAILED)
        raise
    run.end(FINISHED)


def day_of_plan(names: Iterable[str | None], entries: Iterable[Entry]) -> str:
    """The day on which the first of these that holds a plan held it; else today."""
    listed = list(entries)
    held = (day_held(name, listed) for name in names if name is not None)
    return next(filter(None, held), today_in_utc().isoformat())


def noon(day: str) -> int:
    """Noon in UTC of a day, which most of the world calls the same day; in milliseconds.

    >>> noon("2026-10-03")
    1791028800000
    """
    return int(datetime.fromisoformat(f"{day}T12:00:00").replace(tzinfo=UTC).timestamp() * 1000)
