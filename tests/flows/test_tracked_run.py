"""What MLflow is told carries a day, and a run ends as its campaign does."""

from __future__ import annotations

import mlflow
import numpy as np
import pytest
from prefect.exceptions import Pause

import flows.campaign
from dpal.errors import DataError, LedgerError, TrainingStopped, UnexpectedError
from dpal.ledger.stamped_day import today_in_utc
from flows.campaign import run_campaign
from tasks.tracking.campaign_runs import tracked_to_its_end
from tasks.tracking.experiment import tell_mlflow
from tasks.tracking.mlflow_run import (
    FAILED,
    FINISHED,
    KILLED,
    RUNNING,
    finished_run,
    noon,
    open_tracked_run,
)
from tests.flows.injections import KINDS, MARKERS, plain
from tests.flows.leaks import files_below, naming
from tests.timing import COUNTS, auc, moments, seconds, step_seconds

RUNS = 4  # of each count, half of them to learn from
CLOCKS = ("mlflow.tracking._tracking_service.client", "mlflow.tracking.fluent")


@pytest.fixture
def clock(monkeypatch):
    """MLflow's clock, which is set forward by the test."""
    now = {"at": 0.0}
    for module in CLOCKS:
        monkeypatch.setattr(f"{module}.get_current_time_millis", lambda: int(1000 * now["at"]))
    return now


def ours(count, day, clock, generator):
    """A campaign and one phase, told as campaigns are."""
    parent = open_tracked_run(None, "hidden", {}, day=day)
    clock["at"] += 200 * step_seconds(count, generator.normal(1, 0.02))
    parent.log_metrics({"labels": 300})
    with finished_run(None, "hidden/phase-0", {}, day=day) as child:
        child.log_metrics({"labels": 300})
    parent.end(FINISHED)
    return parent.run_id, child.run_id


def naively(count, day, clock, generator):
    """The same by MLflow's own functions."""
    with mlflow.start_run(run_name="hidden") as parent:
        clock["at"] += 200 * step_seconds(count, generator.normal(1, 0.02))
        mlflow.log_metrics({"labels": 300})
        with mlflow.start_run(run_name="hidden/phase-0", nested=True) as child:
            mlflow.log_metrics({"labels": 300})
    return parent.info.run_id, child.info.run_id


def read_back(numbers):
    """Every time that MLflow's client gives of some runs, from the first one on."""
    client, times = mlflow.MlflowClient(), []
    for number in numbers:
        run = client.get_run(number)
        times += [run.info.start_time, run.info.end_time]
        history = client.get_metric_history(number, "labels")
        times += [value for one in history for value in (one.timestamp, one.step)]
    return {str(at): seconds(one - times[0]) for at, one in enumerate(times)}


def attacked(tell, clock, small):
    generator = np.random.default_rng(1)
    seen: dict[int, list[dict[str, float]]] = {}
    for count in COUNTS:
        seen[count] = []
        for begun in moments(1, RUNS, seed=1):
            clock["at"] = begun.timestamp()
            day = begun.date().isoformat()
            runtime = small().runtime
            numbers = tell_mlflow(runtime, lambda: tell(count, day, clock, generator))  # noqa: B023
            seen[count].append(read_back(numbers))
    return auc(seen)


@pytest.mark.slow
def test_nobody_counts_labels_by_mlflows_times(clock, small, workplace):
    """Guessing is .5 exactly: no time differs. By MLflow's own functions everyone could count."""
    assert attacked(ours, clock, small) == 0.5
    assert attacked(naively, clock, small) > 0.99


def test_a_run_fails_with_its_block_and_may_go_on(small, workplace):
    def tell():
        with pytest.raises(ZeroDivisionError), finished_run(None, "x", {}, day="2026-03-01"):
            raise ZeroDivisionError
        client = mlflow.MlflowClient()
        [run] = client.search_runs([experiment()], "attributes.run_name = 'x'")
        assert (run.info.status, run.info.end_time) == (FAILED, noon("2026-03-01"))
        again = open_tracked_run(run, "x", {"told": "again"}, day="2026-03-01")
        assert client.get_run(again.run_id).info.status == RUNNING
        with finished_run(run, "x", {}, day="2026-03-01"):
            pass
        assert client.get_run(again.run_id).info.status == FINISHED

    tell_mlflow(small().runtime, tell)


def experiment():
    found = mlflow.get_experiment_by_name("dpal")
    assert found is not None
    return found.experiment_id


def campaign_run():
    runs = mlflow.MlflowClient().search_runs(
        [experiment()], "tags.`dpal.campaign` = 'small' and tags.`dpal.phase` = 'all'"
    )
    assert len(runs) <= 1
    return runs[0] if runs else None


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_a_campaign_that_fails_or_is_stopped_says_so_and_goes_on(small, workplace, monkeypatch):
    uri = f"sqlite:///{workplace / 'mlflow.sqlite'}"
    schedule = {"initial": 100, "queries": [], "batch_size": 50, "epochs_per_phase": 1}
    config, campaigns = small(runtime__mlflow_uri=uri, schedule=schedule), []

    def tell_phase(campaign, phase):
        campaigns.append(campaign)
        plain()

    with monkeypatch.context() as broken:
        broken.setattr(flows.campaign, "tell_phase", tell_phase)
        with pytest.raises(UnexpectedError):
            run_campaign(config)
    require_ended(FAILED, "failed: its flow")
    for error, status, says in (
        (LedgerError("the ledger was lost; restore it"), FAILED, "failed: the ledger was lost;"),
        (DataError("row {row} is damaged", row=MARKERS[0]), FAILED, "failed: row [...] is damaged"),
        (TrainingStopped("phase-1 was cancelled"), KILLED, "stopped: phase-1 was cancelled"),
        (KeyboardInterrupt(MARKERS[0]), KILLED, "stopped: its flow"),
    ):
        with pytest.raises(type(error)), tracked_to_its_end(campaigns[0]):
            assert campaign_run().info.status == RUNNING
            raise error
        require_ended(status, says)
    for fail in KINDS:
        with pytest.raises(BaseException), tracked_to_its_end(campaigns[0]):  # noqa: B017
            fail()
        assert campaign_run().info.status in (FAILED, KILLED)
    told = list(files_below(workplace / "mlflow.sqlite", *workplace.glob("artifacts/mlflow")))
    assert naming(["its flow run's page says more"], told), "the search reads MLflow's database"
    assert not naming(MARKERS, told)
    with pytest.raises(Pause), tracked_to_its_end(campaigns[0]):
        raise Pause("labels are wanted")
    assert campaign_run().info.status == RUNNING  # people take their time
    for _ in range(2):  # to its end, and once more when it is finished
        run_campaign(config)
        require_ended(FINISHED, "finished")


def require_ended(status, says):
    run = campaign_run()
    assert run.info.status == status
    assert run.data.tags["dpal.state"].startswith(says)
    assert run.info.end_time == run.info.start_time == noon(today_in_utc().isoformat())
    assert not any(marker in str(run.to_dictionary()) for marker in MARKERS)
