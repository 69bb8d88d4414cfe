"""What was spent, and is left, is in MLflow from the first release on: at a glance, and whole."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Run

import dpal
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.errors import LedgerError
from dpal.ledger.folder_lock import lock_folder
from dpal.runs.campaign import Campaign
from dpal.runs.campaign_use_cases import CampaignRuns
from tasks.campaign import hold_budget, select_records
from tasks.tracking.campaign_runs import track_ledger, track_phase, tracked_to_its_end
from tasks.tracking.mlflow_ledger import SPENT
from tests.conftest import small_values

pytestmark = pytest.mark.slow

SCHEDULE = {"initial": 100, "queries": [40], "batch_size": 50, "epochs_per_phase": 1}


@pytest.fixture
def config(workplace) -> CampaignConfig:
    return parse_config(small_values(schedule=SCHEDULE))


def run_in_mlflow(phase: str = "all") -> Run:
    mlflow.set_tracking_uri(f"sqlite:///{Path('artifacts/mlflow.sqlite').resolve()}")
    wanted = f"tags.`dpal.phase` = '{phase}'"
    [run] = mlflow.search_runs(
        experiment_names=["dpal"], filter_string=wanted, output_format="list"
    )
    return run


def artifact(run: Run, name: str) -> Path:
    return Path(mlflow.artifacts.download_artifacts(f"runs:/{run.info.run_id}/{name}"))


def short(run: Run) -> list[list[str]]:
    return json.loads(artifact(run, SPENT).read_text())["data"]


def held(config: CampaignConfig) -> Campaign:
    campaign = CampaignRuns().plan(config)
    with lock_folder(campaign.folder.root):
        hold_budget.fn(campaign)
    return campaign


def test_the_ledger_is_live_before_the_first_phase_is_done(config):
    campaign = held(config)
    track_ledger.fn(campaign)
    begun = run_in_mlflow()
    assert begun.info.status == "RUNNING"
    assert begun.data.tags["dpal.spent"] == "0.0000 of 8, 8.0000 left"
    assert short(begun) == []
    assert artifact(begun, "figures/spent.png").read_bytes().startswith(b"\x89PNG")
    whole = len(mlflow.load_table("ledger.json", run_ids=[begun.info.run_id]))
    with lock_folder(campaign.folder.root):
        select_records.fn(campaign, campaign.plan.phases[0])
    track_ledger.fn(campaign)
    with pytest.raises(LedgerError), tracked_to_its_end(campaign):
        raise LedgerError("the ledger was lost; restore it")
    failed = run_in_mlflow()
    assert failed.info.status == "FAILED"
    assert failed.data.tags["dpal.state"] == "failed: the ledger was lost; restore it"
    assert len(mlflow.load_table("ledger.json", run_ids=[failed.info.run_id])) >= whole


def test_every_phase_adds_its_lines_and_none_stands_twice(config):
    dpal.run(config)
    campaign = CampaignRuns().plan(config)
    for phase in campaign.plan.phases:
        track_phase.fn(campaign, phase, "0" * 32)
    told = run_in_mlflow()
    rows = short(told)
    names = [row[0] for row in rows]
    assert names == ["phase-0/training", "phase-1/selection", "phase-1/training"]
    totals, left = ([float(row[column]) for row in rows] for column in (4, 5))
    charges = [float(row[3]) for row in rows]
    assert totals == sorted(totals) and sum(charges) == pytest.approx(totals[-1], abs=2e-4)
    assert [a + b for a, b in zip(totals, left, strict=True)] == pytest.approx([8.0] * 3, abs=2e-4)
    assert told.data.tags["dpal.spent"].startswith(f"{totals[-1]:.4f} of 8")
    ledger = mlflow.load_table("ledger.json", run_ids=[told.info.run_id])
    assert ledger["sequence"].is_monotonic_increasing
    assert len(ledger) == len(ledger.drop_duplicates(["sequence", "mechanism", "cohorts"]))
    note = told.data.tags["mlflow.note.content"]
    assert all(row[0] in note and row[4] in note for row in rows)
    page = campaign.folder.ledger_page.read_text()
    assert page.index("phase-1/selection") < page.index("Budget by cohort")


def test_people_land_on_the_classic_page_with_a_link_to_the_columns(config):
    track_ledger.fn(held(config))
    run_in_mlflow()
    experiment = mlflow.get_experiment_by_name("dpal")
    assert experiment is not None
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    view = json.loads(experiment.tags["mlflow.sharedViewState.campaigns"])
    shown = " ".join(view["selectedColumns"])
    for column in ("dpal.spent", "campaign_epsilon", "epsilon", "delta", "adjacency", "unit"):
        assert column in shown
    address = f"#/experiments/{experiment.experiment_id}/runs?"
    assert address in experiment.tags["mlflow.note.content"]
    # An experiment that an earlier version made gets it, too.
    client = mlflow.MlflowClient()
    client.set_experiment_tag(experiment.experiment_id, "mlflow.experimentKind", "genai")
    client.set_experiment_tag(experiment.experiment_id, "mlflow.sharedViewState.campaigns", "old")
    track_ledger.fn(CampaignRuns().plan(config))
    again = mlflow.get_experiment_by_name("dpal")
    assert again is not None
    assert again.tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_hidden_campaign_shows_nothing_within_a_phase(workplace):
    """How long a training takes follows how many labels it has."""
    hidden = small_values(
        privacy={"selection": "hidden"}, schedule__initial=300, schedule__queries=[]
    )
    assert not CampaignRuns().plan(parse_config({**hidden, "acquisition": "random"})).shows_progress
    assert CampaignRuns().plan(parse_config(small_values())).shows_progress
