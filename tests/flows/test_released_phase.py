"""A flow registers the phase that is best, says what is worse, and ends where the curve is flat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pytest

import dpal
from dpal.canonical import file_digest
from dpal.runs import campaign_use_cases
from dpal.runs.released_phase import released_phase
from flows.cli import terminal
from tests.flows.calling import call, finished
from tests.runs.misled import BEST, Misled, stopping

pytestmark = pytest.mark.usefixtures("orchestrated", "workplace")


class Killed(BaseException):
    pass


def kill(*_: Any) -> None:
    raise Killed


@pytest.mark.slow
def test_a_flow_goes_on_to_the_same_end_and_registers_the_best(monkeypatch):
    """Its phases are trained without a flow, which dies before the end."""
    with monkeypatch.context() as dying:
        dying.setattr(campaign_use_cases, "end_campaign", kill)
        with pytest.raises(Killed):
            dpal.run(stopping(), labeler=Misled())
    folder = finished(stopping())
    assert len(folder.finished_phases()) == 3
    assert released_phase(folder) == BEST
    mlflow.set_tracking_uri(f"sqlite:///{Path('artifacts/mlflow.sqlite').resolve()}")
    runs = {
        run.data.tags["dpal.phase"]: run
        for run in mlflow.search_runs(experiment_names=["dpal"], output_format="list")
    }
    assert set(runs) == {"all", "0", "1", "2"}
    told = runs["all"].data
    assert told.tags["dpal.state"] == "finished"
    assert told.tags["dpal.released_phase"] == str(BEST)
    best = folder.finished_phases()[BEST]["validation_accuracy"]
    assert told.metrics["validation_accuracy"] == best
    # When it ended was decided in view of what was released: the whole plan counts.
    assert told.metrics["campaign_epsilon"] > folder.finished_phases()[2]["campaign_epsilon"]
    assert ["dpal.worse" in runs[phase].data.tags for phase in "012"] == [False, False, True]
    assert "300 records" in runs["2"].data.tags["dpal.worse"]
    stored = Path(mlflow.artifacts.download_artifacts("models:/dpal-small/1"))
    (weights,) = stored.rglob("model.safetensors")
    assert file_digest(weights) == file_digest(folder.phase(BEST).model)
    checked = call("verify", "--model", "models:/dpal-small/1", "--key", "own",
                   "--mlflow", mlflow.get_tracking_uri(), "--ledger", str(folder.root))  # fmt: skip
    assert checked.returncode == 0, checked
    monkeypatch.setattr(terminal.out, "_width", 250)  # made before this test could say how wide
    shown = call("status", "--artifacts", "artifacts").stdout
    assert "3/4" in shown
    assert "early" in shown
    assert f"phase {BEST}" in shown
    assert f"{100 * best:.2f} %" in call("compare", str(folder.root)).stdout
    again = folder.certificate.read_bytes()
    assert finished(stopping()).certificate.read_bytes() == again
    folder.certificate.write_text("torn", encoding="utf-8")
    torn = call("status", "--artifacts", "artifacts")
    assert (torn.returncode, "3/4" in torn.stdout) == (0, True)
