"""The experiment that all runs are in: how it is opened, asked, and told."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import mlflow
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from dpal.config.runtime import RuntimeConfig
from tasks.tracking.mlflow_connection import retry_while_mlflow_is_down, tracking_uri
from tasks.tracking.mlflow_notes import (
    CAMPAIGNS_VIEW,
    CLASSIC,
    KIND,
    NOTE,
    VIEW,
    experiment_note,
    flow_run_address,
)

T = TypeVar("T")

EXPERIMENT = "dpal"
SOURCE = {"mlflow.source.name": "dpal run", "mlflow.source.type": "LOCAL"}


def tell_mlflow(runtime: RuntimeConfig, tell: Callable[[], T], *, patient: bool = True) -> T:
    """Tells the server that settings name something, within the experiment.

    Raises:
      TrackingError: it does not answer, or refuses.
    """
    uri = tracking_uri(runtime)

    def tell_there() -> T:
        mlflow.set_tracking_uri(uri)
        _open_experiment(uri, runtime.artifacts)
        with warnings.catch_warnings():
            # Hints about integer columns and input examples that our signatures settle.
            warnings.simplefilter("ignore", UserWarning)
            return tell()

    return retry_while_mlflow_is_down(uri, tell_there, patient=patient)


def _open_experiment(uri: str, artifacts: Path) -> None:
    experiment = mlflow.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        local = (artifacts.resolve() / "mlflow").as_uri()
        # A server keeps files where it was told to; a bare database needs a folder.
        try:
            mlflow.create_experiment(EXPERIMENT, None if uri.startswith("http") else local)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # campaigns start side by side
                raise
    opened = mlflow.set_experiment(EXPERIMENT)
    if opened.tags.get(VIEW) != CAMPAIGNS_VIEW:  # also where an earlier version made it
        note = experiment_note(str(opened.experiment_id))
        mlflow.set_experiment_tags({NOTE: note, KIND: CLASSIC, VIEW: CAMPAIGNS_VIEW})


def experiment_id() -> str:
    """MLflow's number of the experiment, which has been opened."""
    experiment = mlflow.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        raise LookupError(f"the experiment {EXPERIMENT} was never opened")
    return str(experiment.experiment_id)


def find_run(tags: dict[str, str]) -> Run | None:
    """The run with all of these tags; None if there is none."""
    query = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    runs = mlflow.search_runs(
        experiment_names=[EXPERIMENT], filter_string=query, max_results=1, output_format="list"
    )
    return runs[0] if runs else None


def prefect_tag() -> dict[str, str]:
    """By which the flow run is found that told of something."""
    address = flow_run_address()
    return {"prefect.flow_run": address} if address else {}
