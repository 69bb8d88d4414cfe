"""Whole campaigns on a real Prefect server, with MLflow and DVC, on small data."""

from __future__ import annotations

import json
import shutil
import sqlite3
from functools import partial
from pathlib import Path

import mlflow
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.sorting import FlowRunSort

from dpal.canonical import file_digest
from dpal.config.campaign import parse_config
from dpal.config.runtime import RuntimeConfig
from dpal.data.labeling_state import RETIRED, read_retired
from dpal.errors import ConfigError
from dpal.files.artifacts import CampaignFolder
from dpal.files.object_store import Store, StoreHolds, is_confidential
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs.kinds import parse_any
from dpal.runs.released_phase import reached, released_phase
from dpal.runs.store_sync import require_store_for_workers
from dpal.runs.verify_ledger import verify_ledger
from flows.campaign import run_campaign
from flows.cli.ledger_view import as_object
from flows.cli.plan_campaign import CampaignPlanViews
from flows.cli.plan_view import RunPlanViews
from flows.pate import vote_and_learn
from flows.public import improve_model
from tasks.training_pool.wait_for_training import artifacts_of
from tests.conftest import flows_at, nothing_released, small_values, write_blobs
from tests.flows import improving, voting
from tests.flows.calling import call

pytestmark = pytest.mark.usefixtures("orchestrated")


def track(place: Path) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{place / 'artifacts' / 'mlflow.sqlite'}")


def last_flow_run(name: str):
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[name])),
            sort=FlowRunSort.START_TIME_DESC,
            limit=1,
        )
        kept = artifacts_of(client, runs[0].id)
    return runs[0], {artifact.key: artifact for artifact in kept}


def write_public(place: Path) -> None:
    """Public records beside those of a workplace."""
    write_blobs(place / "public.parquet", 400, seed=3, prefix="p")


@pytest.fixture(scope="module")
def finished(prefect_api, tmp_path_factory):
    """One campaign, run once, looked at by many tests."""
    place = tmp_path_factory.mktemp("finished")
    write_blobs(place / "pool.parquet", 600, seed=1)
    write_blobs(place / "validation.parquet", 300, seed=2, prefix="v")
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(place)
        config = parse_config(
            small_values(
                name="whole", runtime__dvc_remote="remote", runtime__store=(place / "far").as_uri(),
                data__label_column="label",
            )
        )  # fmt: skip
        run_campaign(config)
        run, artifacts = last_flow_run("whole")
    return place, config, run, artifacts


def folder_of(place: Path) -> CampaignFolder:
    return CampaignFolder(place / "artifacts" / "whole")


def test_a_campaign_learns_within_its_promise(finished):
    folder = folder_of(finished[0])
    phases = folder.finished_phases()
    assert [phase["labels"] for phase in phases] == [100, 140, 180]
    assert phases[-1]["validation_accuracy"] > 0.8
    assert 7.9 < phases[-1]["campaign_epsilon"] <= 8
    epsilons = [phase["campaign_epsilon"] for phase in phases]
    assert epsilons == sorted(epsilons)
    spent = {one["cohort"]: one["epsilon_pld"] for one in phases[-1]["cohorts"]}
    assert set(spent) == {"0", "1", "2", "never_selected"}
    assert all(7.7 < spent[cohort] <= 8 for cohort in "012")
    assert spent["never_selected"] < 3


def test_the_ledger_adds_up_to_the_plan(finished):
    folder = folder_of(finished[0])
    view, plan = as_object(folder), folder.read_record()["plan"]
    for planned in plan["cohorts"]:
        entered = next(c for c in view["cohorts"] if c["cohort"] == str(planned["cohort"]))
        for key in ("selection_epsilon", "epsilon_rdp", "epsilon_pld"):
            assert entered[key] == pytest.approx(planned[key], abs=1e-12)
    assert view["campaign_epsilon"] == pytest.approx(plan["epsilon_pld"], abs=1e-12)
    assert all(release["state"] == "commit" for release in view["releases"])
    verdict = verify_ledger(folder)
    # The ledger's first, the hold, the end.
    assert verdict.entries == 3 + 2 * len(view["releases"])
    assert verdict.head == view["head"]["digest"]
    assert verdict.absent == 0


def test_a_store_that_may_hold_what_was_released_has_that_alone(finished):
    """The default: trained here, nothing confidential has to go there."""
    place, config, _, _ = finished
    (released,) = (place / "far").iterdir()
    (campaign,) = released.iterdir()
    kept = Store(url=config.runtime.store, campaign=campaign.name, holds=StoreHolds.RELEASED)
    names = set(kept.known())
    assert {"phase-2/model.safetensors", "certificate.json"} <= names
    assert not any(is_confidential(name) for name in names)


def test_a_store_that_may_not_hold_labels_takes_none_to_workers(workplace):
    """When it is planned, and before anything is bought: not when the first phase is to train."""
    store = {"store": (workplace / "far").as_uri()}
    pool = {"training_pool": "gpu"}
    config = parse_config(small_values(name="refused", runtime={**store, **pool}))
    for begin in (run_campaign, partial(CampaignPlanViews().plan, explained=False)):
        with pytest.raises(ConfigError, check=nothing_released):
            begin(config)
    assert not Path("artifacts/refused").exists()
    for allowed in (store, pool, {**store, **pool, "store_holds": "everything"}):
        require_store_for_workers(RuntimeConfig.model_validate(allowed))


@pytest.mark.parametrize(
    ("run", "write_data", "called", "alone"),
    [
        (
            vote_and_learn,
            voting.write_data,
            voting.settings("refused", baselines={"run": ["dp_sgd"]}),
            voting.settings("refused", baselines={"run": ["private_knn", "non_private"]}),
        ),
        (
            improve_model,
            write_public,
            improving.settings("refused"),
            improving.settings("refused", start={"campaign": "begun"}),
        ),
    ],
)
def test_a_campaign_that_is_called_is_refused_such_a_store_before_votes_or_guidance_are_held(
    workplace, run, write_data, called, alone
):
    """And nothing else is: all other training stays with the process that leads."""
    write_data(workplace)
    runtime = {"store": (workplace / "far").as_uri(), "training_pool": "gpu"}
    config = parse_any({**called, "runtime": runtime})
    for begin in (run, partial(RunPlanViews().plan, explained=False)):
        with pytest.raises(ConfigError, check=nothing_released) as refused:
            begin(config)
        assert refused.value.setting == "runtime.store_holds"
    assert not Path("artifacts").exists()
    assert not parse_any({**alone, "runtime": runtime}).calls_campaigns


def test_every_file_is_in_the_manifest_and_only_the_owners(finished):
    folder = folder_of(finished[0])
    for index in range(3):
        files = folder.phase(index)
        manifest = json.loads(files.manifest.read_text())
        present = {
            str(path.relative_to(folder.root))
            for place in (files.root, files.confidential)
            for path in place.iterdir()
        }
        assert present - {f"{files.root.name}/manifest.json"} == set(manifest["files"])
        assert len(present) == 9
        for name, digest in manifest["files"].items():
            assert file_digest(folder.root / name) == digest
    private = [folder.salt, folder.start, *folder.root.rglob("*.parquet")]
    assert len(private) == 2 + 1 + 3 * 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in private)


def test_labels_and_cohorts_are_what_the_pool_says(finished):
    place = finished[0]
    state = pq.read_table(folder_of(place).phase(2).pool).to_pandas()
    truth = pq.read_table(place / "pool.parquet", columns=["id", "label"]).to_pandas()
    assert state["id"].tolist() == truth["id"].tolist()
    labeled = state["cohort"] >= 0
    assert (state.loc[labeled, "label"] == truth.loc[labeled, "label"]).all()
    assert state.loc[~labeled, "label"].isna().all()
    counts = state["cohort"].value_counts().to_dict()
    retired = counts.pop(RETIRED, 0)  # said yes beyond the label budget; a few, by chance
    assert counts == {-1: 420 - retired, 0: 100, 1: 40, 2: 40}
    files = [folder_of(place).phase(i).selection for i in range(3)]
    named = [name for path in files for name in read_retired(path)]
    assert sorted(named) == sorted(state.loc[state["cohort"] == RETIRED, "id"])


def runs_of(place: Path):
    track(place)
    runs = mlflow.search_runs(experiment_names=["dpal"], output_format="list")
    parent = next(run for run in runs if run.data.tags["dpal.phase"] == "all")
    children = sorted(
        (run for run in runs if run.data.tags["dpal.phase"] != "all"),
        key=lambda run: run.data.tags["dpal.phase"],
    )
    return parent, children


def test_mlflow_has_the_whole_story(finished):
    place = finished[0]
    parent, children = runs_of(place)
    assert parent.info.status == "FINISHED"
    names = [child.info.run_name for child in children]
    assert names == ["whole/phase-0", "whole/phase-1", "whole/phase-2"]
    assert all(c.data.tags["mlflow.parentRunId"] == parent.info.run_id for c in children)
    assert parent.data.params["epsilon"] == "8"
    assert parent.data.tags["dpal.state"] == "finished"
    note = parent.data.tags["mlflow.note.content"]
    assert "epsilon 8 at delta 0.000167" in note and "dpal ledger verify" in note
    assert "/runs/flow-run/" in parent.data.tags["prefect.flow_run"]
    assert {parent.data.tags[key] for key in ("adjacency", "unit")} == {"zero_out", "record"}
    assert parent.data.metrics["epsilon_pld/cohort_0"] <= 8.0
    assert 7.9 < parent.data.metrics["campaign_epsilon"] <= 8.0
    history = mlflow.MlflowClient().get_metric_history(parent.info.run_id, "validation_accuracy")
    assert [point.step for point in history][:3] == [0, 1, 2]
    # The newest is what columns show: that of the model.
    shown = parent.data.metrics["validation_accuracy"]
    assert shown == reached(folder_of(place))["validation_accuracy"]
    released = released_phase(folder_of(place))
    assert parent.data.tags["dpal.released_phase"] == str(released)
    assert parent.inputs.dataset_inputs[0].dataset.name == "validation"
    table = mlflow.load_table("ledger.json", run_ids=[parent.info.run_id])
    # The last phase's export, and the campaign's end after it.
    assert set(exported_digests(place)) < set(table["digest"])
    assert table["digest"].iloc[-1] == parent.data.tags["ledger.head"]
    report = Path(mlflow.artifacts.download_artifacts(f"runs:/{parent.info.run_id}/report.html"))
    assert report.read_bytes() == folder_of(place).report_page.read_bytes()
    page = Path(mlflow.artifacts.download_artifacts(f"runs:/{parent.info.run_id}/ledger.html"))
    assert page.read_bytes() == folder_of(place).ledger_page.read_bytes()
    assert f"certificate {parent.data.tags['dpal.certificate']}" in page.read_text()


def exported_digests(place: Path) -> list[str]:
    return pq.read_table(folder_of(place).phase(2).ledger)["digest"].to_pylist()


def test_the_dvc_hashes_are_tags_and_the_remote_restores_a_phase(finished):
    import subprocess
    import sys

    place = finished[0]
    pointer = yaml.safe_load((place / "artifacts" / "whole" / "phase-1.dvc").read_text())
    assert runs_of(place)[1][1].data.tags["dvc.md5"] == pointer["outs"][0]["md5"]
    copy = place / "copy"
    shutil.copytree(place / "artifacts", copy, ignore=shutil.ignore_patterns("cache"))
    shutil.rmtree(copy / "whole" / "phase-1")
    pull = [sys.executable, "-m", "dvc", "pull", "-q"]
    subprocess.run([*pull, "whole/phase-1.dvc"], cwd=copy, check=True)
    folder = CampaignFolder(copy / "whole")
    assert folder.phase(1).read_manifest() is not None
    # Labels are no release, whatever the mode: they were never pushed.
    shutil.rmtree(folder.phase(1).confidential)
    refused = subprocess.run([*pull, "whole/confidential/phase-1.dvc"], cwd=copy, check=False)
    assert refused.returncode != 0
    assert not folder.phase(1).labels.exists()


def test_the_logged_model_answers_on_the_pools_own_columns(finished):
    place = finished[0]
    parent, _ = runs_of(place)
    model = mlflow.pyfunc.load_model(f"runs:/{parent.info.run_id}/model")
    validation = pq.read_table(place / "validation.parquet").to_pandas()
    answers = model.predict(pd.DataFrame({"features": list(validation["features"])}))
    share = float((answers["label"] == validation["label"]).mean())
    assert share == pytest.approx(reached(folder_of(place))["validation_accuracy"])
    assert answers["probability"].between(1 / 3, 1).all()
    stored = Path(mlflow.artifacts.download_artifacts(f"runs:/{parent.info.run_id}/model"))
    kinds = {path.suffix for path in stored.rglob("*") if path.is_file()}
    assert not kinds & {".pkl", ".pickle", ".pt", ".pth"}


def test_the_certificate_travels_with_the_registered_model(finished):
    """Written by the campaign, verified by the command from the registry alone."""
    place = finished[0]
    folder = folder_of(place)
    document = json.loads(folder.certificate.read_text())
    assert document["digest"] in folder.report.read_text()
    parent, _ = runs_of(place)
    assert parent.data.tags["dpal.certificate"] == document["digest"]
    store = f"sqlite:///{place / 'artifacts' / 'mlflow.sqlite'}"
    result = call(
        "verify", "--model", "models:/dpal-whole/1", "--mlflow", store, "--json",
        "--ledger", str(folder.root), "--data", str(place / "pool.parquet"),
        "--salt", str(folder.salt), "--key", "own",
    )  # fmt: skip
    assert result.returncode == 0, result
    found = {one["check"]: one["outcome"] for one in json.loads(result.stdout)["checks"]}
    assert found.pop("other campaigns") == "not checked"
    assert set(found.values()) == {"ok"}


def test_signatures_travel_with_whatever_shows_the_ledger(finished):
    """Beside the files, in the manifest of every phase, in MLflow's run and in the model."""
    place = finished[0]
    folder = folder_of(place)
    key = ["--key", "own"]
    for name in ("report.html", "report.md", "ledger.html", "phase-1/ledger.parquet"):
        done = call("verify", str(folder.root / name), "--ledger", str(folder.root), *key)
        assert done.returncode == 0, done
    signature = "phase-1/ledger.dsse.json"
    assert folder.phase(1).stated_files()[signature] == file_digest(folder.root / signature)
    parent, _ = runs_of(place)
    logged = {one.path for one in mlflow.artifacts.list_artifacts(run_id=parent.info.run_id)}
    assert {"certificate.dsse.json", "report.dsse.json", "ledger.dsse.json"} <= logged
    stored = Path(mlflow.artifacts.download_artifacts(f"runs:/{parent.info.run_id}/model"))
    inside = (stored / "artifacts" / "certificate.dsse.json").read_text()
    assert inside == folder.signature.read_text()


def test_the_description_says_which_figure_keeps_the_promise_and_how_to_check_it(finished):
    parent, _ = runs_of(finished[0])
    note = parent.data.tags["mlflow.note.content"]
    assert "by PLD; figures" in note
    assert note.count("--key own") == 1 and "--key KEY" in note


def test_prefect_shows_plan_progress_and_budget(finished):
    _, _, run, artifacts = finished
    assert run.state_name == "Completed"
    plan = json.loads(artifacts["plan"].data)
    assert [row["new labels"] for row in plan] == ["100", "40", "40"]
    assert "adjacency zero_out" in artifacts["plan"].description
    assert float(artifacts["progress"].data) == 100.0
    trained = last_flow_run("whole-phase-2")[1]["phase-2-training"]
    assert float(trained.data) == 100.0
    assert artifacts["budget"].data.startswith("data:image/png;base64,")


def test_nothing_private_leaves(finished):
    """Ids and labels of the pool are looked for in everything MLflow, the report and the
    ledger hold; scores, losses and training accuracy by name."""
    place = finished[0]
    folder = folder_of(place)
    ids = {name.encode() for name in pq.read_table(place / "pool.parquet")["id"].to_pylist()}
    public = [
        place / "artifacts" / "mlflow.sqlite",
        place / "artifacts" / "ledger.sqlite",
        folder.report,
        folder.root / "campaign.json",
        *(path for path in (place / "artifacts" / "mlflow").rglob("*") if path.is_file()),
        *(folder.phase(i).metrics for i in range(3)),
        *(folder.phase(i).manifest for i in range(3)),
    ]
    assert len(public) > 10
    for path in public:
        content = path.read_bytes()
        assert not any(name in content for name in ids), path
        for word in (b"train_loss", b"training_loss", b"train_accuracy", b"noise_seed"):
            assert word not in content, path
    # The search would find what is there: the state file holds the ids.
    assert any(name in folder.phase(2).pool.read_bytes() for name in ids)


def test_running_it_again_releases_nothing(finished):
    place, config, _, _ = finished
    folder = folder_of(place)
    before = LedgerStore(folder.ledger).entries()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        run_campaign(config)
    assert LedgerStore(folder.ledger).entries() == before
    assert len(runs_of(place)[1]) == 3


def test_the_report_says_what_is_promised_and_what_is_not(finished):
    text = folder_of(finished[0]).report.read_text()
    assert "epsilon 8 at delta 0.000167" in text
    assert "adjacency zero_out" in text
    assert "not protect" in text
    assert "| never selected |" in text
    for figure in ("accuracy.png", "budget.png"):
        assert (folder_of(finished[0]).figures / figure).read_bytes().startswith(b"\x89PNG")


def test_the_ledgers_sqlite_is_in_wal_mode(finished):
    raw = sqlite3.connect(finished[0] / "artifacts" / "ledger.sqlite")
    assert raw.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
