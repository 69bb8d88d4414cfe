"""Whole hidden campaigns that break everywhere, are stopped, and are timed: they tell nothing."""

from __future__ import annotations

import json
import time
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import mlflow
import pyarrow.parquet as pq
import pytest
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, temporary_settings

from dpal.data.labeling_state import read_selection
from dpal.files.artifacts import CampaignFolder
from dpal.labeling.oracle import OracleLabeler
from dpal.ledger.entries import EntryKind
from dpal.ledger.export_table import ledger_table
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.stamped_day import today_in_utc
from dpal.runs.labelers.oracle import PoolLabels
from dpal.training.dp_sgd import PrivateGradient
from tasks.training_monitor import FlowRunMonitor
from tests.conftest import write_blobs, write_config
from tests.flows.calling import call
from tests.flows.leaks import counted, files_below, naming, planned_numbers, text_of
from tests.flows.test_campaign import runs_of
from tests.flows.test_hidden import IDS, SCHEDULE, UNREADABLE, public_files
from tests.timing import COUNTS, auc, figures_of_entries, seconds

pytestmark = pytest.mark.slow

# What tasks call, in the order in which a campaign comes to it; each is broken once.
BROKEN = (
    "dpal.runs.select_records.write_selection", "dpal.data.labeling_state.write_labels",
    "dpal.runs.labeling.write_merged", "dpal.runs.phase_training.train_dp_sgd",
    "dpal.runs.public_model_figures.evaluation_metrics", "dpal.runs.close_phase.write_ledger",
    "tasks.version_with_dvc._dvc_all", "tasks.tracking.campaign_runs.phase_parameters",
    "tasks.campaign_page.budget_figure", "dpal.runs.write_certificate.certificate_of",
    "dpal.runs.make_report.report_of",
    "tasks.tracking.mlflow_model.Model.log",
)  # fmt: skip
EVERY = 5  # steps between two checkpoints
RUNS = 4  # of each count, half of them to learn from


@pytest.fixture
def place(tmp_path, prefect_api, monkeypatch):
    write_blobs(tmp_path / "pool.parquet", 6000, seed=1, prefix=IDS)
    write_blobs(tmp_path / "validation.parquet", 300, seed=2, prefix="v")
    monkeypatch.chdir(tmp_path)
    here = {PREFECT_API_URL: prefect_api, PREFECT_LOCAL_STORAGE_PATH: tmp_path / "storage"}
    with temporary_settings(here):
        yield tmp_path


def hidden(place, name, **changes):
    privacy = {"selection": "hidden"}
    return write_config(place / f"{name}.yaml", name=name, strategy="naive", privacy=privacy,
                        **{"schedule": SCHEDULE, **changes})  # fmt: skip


def entries_of(place, name):
    with closing(LedgerStore(place / "artifacts" / "ledger.sqlite")) as store:
        return store.entries(name)


@pytest.mark.statistical
def test_a_campaign_that_breaks_everywhere_tells_nothing(place, prefect_home):
    """Twelve times, with ids, labels and counts in what is raised; then it comes to its end."""
    hidden(place, "unseen", runtime__dvc_remote="remote")
    folder, said = CampaignFolder(place / "artifacts" / "unseen"), []
    pool = pq.read_table(place / "pool.parquet").to_pylist()

    def fail(*_, **__):
        known = [*map(read_selection, sorted(folder.root.rglob("selection.parquet"))), ["nobody"]]
        error = ValueError(f"{known[-2:]}: {[len(one) for one in known]} of {pool[0]['id']}")
        error.add_note(f"label {pool[7]['label']} of {pool[7]['id']}")
        raise error from KeyError(pool[3]["id"])

    for name in BROKEN:
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(name, fail)
            ended = call("run", "unseen.yaml")
        assert ended.returncode == 70, (name, ended)
        assert "in artifacts/unseen/confidential/errors/" in ended.stderr.replace(f"{place}/", "")
        said.append(ended.stdout + ended.stderr)
    ended = call("run", "unseen.yaml")
    assert ended.returncode == 0, ended
    said.append(ended.stdout + ended.stderr)
    APILogWorker.drain_all(timeout=30)
    EventsWorker.drain_all(timeout=30)
    finished = SimpleNamespace(place=place, folder=folder)
    public, prefect = list(public_files(finished)), list(files_below(prefect_home))
    assert naming([IDS], [*public, *prefect]) == set()
    assert not list(files_below(place / "storage"))
    assert not any(IDS in one for one in said)
    sizes = [len(read_selection(folder.phase(index).selection)) for index in range(3)]
    secret = {*sizes, sizes[0] + sizes[1], sum(sizes), 6000 - sum(sizes)}
    texts = [text_of(one) for one in public if one.suffix not in UNREADABLE] + said
    for number in secret - planned_numbers(folder):
        assert not any(counted(number, text) for text in texts), number
    kept = list(files_below(folder.errors))
    assert len(kept) == len(BROKEN)
    assert naming([IDS], kept) == set(kept)  # the search finds them where they are
    parent, _ = runs_of(place)
    assert (parent.info.status, parent.data.tags["dpal.state"]) == ("FINISHED", "finished")


def test_a_training_that_is_stopped_does_not_say_how_fast_it_was(place, monkeypatch):
    """It goes on from its last regular checkpoint, wherever it was stopped."""
    schedule = {**SCHEDULE, "epochs_per_phase": 4}
    hidden(place, "stopped", schedule=schedule, runtime__checkpoint_steps=EVERY)
    real, steps = FlowRunMonitor.must_stop, []

    def must_stop(attendant):
        steps.append(0)
        attendant._cancelled = len(steps) == EVERY + 2
        return real(attendant)

    with monkeypatch.context() as stopping:
        stopping.setattr(FlowRunMonitor, "must_stop", must_stop)
        ended = call("run", "stopped.yaml")
    assert ended.returncode == 2
    assert f"phase-0, after {EVERY} of" in ended.stderr
    made = [
        one.body["steps"]
        for one in entries_of(place, "stopped")
        if one.kind is EntryKind.CHECKPOINT
    ]
    assert made == [EVERY]
    assert call("run", "stopped.yaml").returncode == 0
    made = [
        one.body["steps"]
        for one in entries_of(place, "stopped")
        if one.kind is EntryKind.CHECKPOINT
    ]
    assert made and all(one % EVERY == 0 for one in made)


@pytest.mark.timing
@pytest.mark.statistical
def test_whole_campaigns_do_not_tell_how_many_labels_were_bought(place, monkeypatch):
    """Of 300 planned labels a query, annotators give 300, 211 or 150; a step waits for each record.

    The attacker has the ledger's export, the certificate and MLflow. Guessing is .5 exactly, as
    nothing that he sees differs; whoever times the steps themselves knows.
    """
    summed, label, waited = PrivateGradient.clipped_sum, OracleLabeler.label, []

    def slowly(gradient, inputs, labels, *sizes):
        begun = time.monotonic()
        time.sleep(2e-4 * len(labels))
        waited.append(time.monotonic() - begun)
        return summed(gradient, inputs, labels, *sizes)

    monkeypatch.setattr(PrivateGradient, "clipped_sum", slowly)
    monkeypatch.setattr(PoolLabels, "may_skip", True)
    schedule = {"initial": 300, "queries": [300], "batch_size": 150, "epochs_per_phase": 8}
    seen: dict[int, list] = {}
    timed: dict[int, list] = {}
    day = today_in_utc()
    for count in COUNTS:
        seen[count], timed[count] = [], []

        def some(labeler, ids, count=count):
            return dict(list(label(labeler, ids).items())[:count])

        monkeypatch.setattr(OracleLabeler, "label", some)
        for run in range(RUNS):
            name = f"seen-{count}-{run}"
            waited.clear()
            hidden(place, name, schedule=schedule)
            assert call("run", f"{name}.yaml").returncode == 0
            timed[count].append({"steps": sum(waited)})
            seen[count].append(all_that_is_seen(place, name))
    if day == today_in_utc():  # else the day of a hold is one of two, whatever the count
        assert auc(seen) == 0.5
    assert auc(timed) > 0.9


def all_that_is_seen(place, name):
    """Figures that may follow time, of everything that a campaign leaves."""
    rows: Any = ledger_table(entries_of(place, name)).to_dict("records")
    found = figures_of_entries(rows)
    folder = CampaignFolder(place / "artifacts" / name)
    certificate = json.loads(folder.certificate.read_text())["ledger"]["entries"]
    certified = [{**one, "steps_on_disk": 0} for one in certificate if one["campaign"] == name]
    found |= {f"certified {key}": one for key, one in figures_of_entries(certified).items()}
    client = mlflow.MlflowClient(f"sqlite:///{place / 'artifacts' / 'mlflow.sqlite'}")
    experiment = client.get_experiment_by_name("dpal")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], f"tags.`dpal.campaign` = '{name}'")
    times = []
    for run in sorted(runs, key=lambda one: one.data.tags["dpal.phase"]):
        times += [run.info.start_time, run.info.end_time]
        for metric in sorted(run.data.metrics):
            history = client.get_metric_history(run.info.run_id, metric)
            times += [one.timestamp for one in history]
    return found | {f"mlflow {at}": seconds(one - times[0]) for at, one in enumerate(times)}
