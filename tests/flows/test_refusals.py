"""People label, plans differ, files change: what a campaign does then."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect.exceptions import Pause

from dpal.canonical import file_digest
from dpal.errors import (
    DataChanged,
    DataError,
    LabelError,
    LedgerError,
    LedgerTampered,
    ParameterError,
    PlanRejected,
)
from dpal.files.artifacts import CampaignFolder
from dpal.runs.labeling import deliver_labels
from dpal.runs.verify_ledger import verify_ledger
from flows.campaign import run_campaign
from flows.cli.ledger_view import as_object
from tests.conftest import having, write_blobs
from tests.flows.calling import finished
from tests.flows.test_campaign import last_flow_run

pytestmark = pytest.mark.usefixtures("orchestrated")


@pytest.mark.slow  # tests/flows/test_labeling.py does it through the command
def test_a_person_labels_and_the_campaign_goes_on(workplace, small):
    unlabeled = pq.read_table("pool.parquet").drop(["label"])
    truth = dict(
        zip(
            *pq.read_table("pool.parquet", columns=["id", "label"]).to_pydict().values(),
            strict=True,
        )
    )
    pq.write_table(unlabeled, "pool.parquet")
    config = small(
        name="people",
        labeler__kind="file",
        schedule={"initial": 30, "queries": [10], "batch_size": 10, "epochs_per_phase": 1},
    )
    folder = CampaignFolder(Path("artifacts/people"))
    for phase in range(2):
        with pytest.raises(Pause, match=r"query\.csv; .*label artifacts/people"):
            run_campaign(config)
        run, _ = last_flow_run("people")
        assert run.state_name == "Paused"
        assert "dpal label" in run.state.message
        query = folder.phase(phase).query / "query.csv"
        with query.open(newline="") as stream:
            asked = [row["id"] for row in csv.DictReader(stream)]
        assert len(asked) == (30, 10)[phase]
        answers = Path(f"answers-{phase}.csv")
        answers.write_text("id,label\n" + "".join(f"{name},{truth[name]}\n" for name in asked))
        assert deliver_labels(folder, answers) == len(asked)
    run_campaign(config)
    state = pq.read_table(folder.phase(1).pool).to_pandas()
    labeled = state[state["cohort"] >= 0]
    assert all(truth[row.id] == row.label for row in labeled.itertuples())
    with pytest.raises(LabelError, match="open query"):
        deliver_labels(folder, answers)


@pytest.mark.parametrize(
    ("strategy", "acquisition"),
    [
        pytest.param("step_amplification", "random", marks=pytest.mark.slow),
        pytest.param("naive", "least_confidence", marks=pytest.mark.slow),
        pytest.param("noise_reduction", "margin", marks=pytest.mark.slow),
        pytest.param("continual", "bald", marks=pytest.mark.slow),
    ],
)
def test_every_strategy_and_acquisition_runs(workplace, small, strategy, acquisition):
    config = small(
        name="combined",
        strategy=strategy,
        acquisition=acquisition,
        schedule={"initial": 60, "queries": [20], "batch_size": 20, "epochs_per_phase": 1},
    )
    folder = finished(config)
    view = as_object(folder)
    assert 7.9 < view["campaign_epsilon"] <= 8
    charged = view["cohorts"][-1]["selection_epsilon"]
    assert charged == 0 if acquisition == "random" else 0 < charged < 2
    steps = next(one for one in folder.read_record()["plan"]["phases"] if one["phase"] == 1)
    total = steps["steps"] + steps["catch_up_steps"]
    shown = last_flow_run("combined-phase-1")[1]["phase-1-training"].description
    assert shown == f"phase-1: {total:,} private steps"


@pytest.mark.slow
def test_a_campaign_does_not_change_under_its_name(workplace, small):
    schedule = {"initial": 30, "queries": [10], "batch_size": 10, "epochs_per_phase": 1}
    folder = finished(small(name="fixed", schedule=schedule))
    with pytest.raises(LabelError, match="takes its labels from the pool"):
        deliver_labels(folder, Path("labels.csv"))
    with pytest.raises(LedgerError, match=r"another plan \(privacy\.epsilon was 8.*, is 3"):
        run_campaign(small(name="fixed", schedule=schedule, privacy__epsilon=3))
    write_blobs(workplace / "pool.parquet", 600, seed=99)
    with pytest.raises(DataChanged, check=having(row_groups=(0,), released=False)):
        run_campaign(small(name="fixed", schedule=schedule))


@pytest.mark.slow
def test_an_altered_model_stops_the_campaign(workplace, small):
    config = small(
        name="altered",
        schedule={"initial": 30, "queries": [10], "batch_size": 10, "epochs_per_phase": 1},
    )
    folder = finished(config)
    model = folder.phase(1).model
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    with pytest.raises(LedgerError, match=r"phase-1 were .*finished"):
        run_campaign(config)
    with pytest.raises(LedgerTampered, match=r"model\.safetensors .*committed"):
        verify_ledger(folder)
    folder.phase(1).manifest.unlink()
    with pytest.raises(LedgerError, match=r"altered since phase-1/training was committed"):
        run_campaign(config)


@pytest.mark.slow
def test_a_cohort_cannot_be_drawn_a_second_time(workplace, small):
    """Lost id files of a trained phase must not be drawn anew: the old cohort would pay twice."""
    config = small(
        name="lost",
        schedule={"initial": 30, "queries": [10], "batch_size": 10, "epochs_per_phase": 1},
    )
    folder = finished(config)
    files = folder.phase(0)
    for path in (files.selection, files.labels, files.pool):
        path.unlink()
    with pytest.raises(LedgerError, match="phase-0 were"):
        run_campaign(config)
    files.manifest.unlink()
    with pytest.raises(LedgerError, match=r"altered since phase-0/training was reserved"):
        run_campaign(config)


@pytest.mark.slow
def test_a_copied_campaign_is_not_another_one(workplace, small):
    schedule = {"initial": 30, "queries": [10], "batch_size": 10, "epochs_per_phase": 1}
    shutil.copytree(finished(small(name="first", schedule=schedule)).root, "artifacts/second")
    with pytest.raises(LedgerError, match="know campaign second"):
        run_campaign(small(name="second", schedule=schedule, privacy__epsilon=1))


def test_a_model_that_does_not_fit_costs_nothing(workplace, small):
    with pytest.raises(ParameterError, match="at least 16x16"):
        run_campaign(small(name="unfit", model__name="tutorial_cnn"))
    assert not Path("artifacts/ledger.sqlite").exists()


@pytest.mark.slow
def test_one_file_in_both_roles_leaves_no_digest_of_itself(workplace, small):
    """A digest of the file would commit to the private half of it; confidential files have it."""
    parts = [pq.read_table(f"{role}.parquet") for role in ("pool", "validation")]
    tagged = [
        part.append_column("split", [[word] * len(part)])
        for part, word in zip(parts, ("train", "test"), strict=True)
    ]
    pq.write_table(pa.concat_tables(tagged), "both.parquet")
    config = small(
        name="both",
        data={"pool": "both.parquet", "validation": "both.parquet"},
        schedule={"initial": 30, "queries": [10], "batch_size": 10, "epochs_per_phase": 1},
        runtime__mlflow_uri=None,
    )
    run_campaign(config)
    secret = file_digest(Path("both.parquet"))[:24].encode()
    store = Path("artifacts")
    open_files = [path for path in store.rglob("*.json") if "confidential" not in path.parts]
    for path in (store / "mlflow.sqlite", store / "ledger.sqlite", *open_files):
        assert secret not in path.read_bytes(), path
    assert len(CampaignFolder(store / "both").finished_phases()) == 2


def test_bad_data_starts_nothing(workplace, small):
    table = pq.read_table("pool.parquet")
    pq.write_table(table.set_column(0, "id", [["same"] * 600]), "pool.parquet")
    with pytest.raises(DataError, match="same id"):
        run_campaign(small(name="bad"))
    assert not Path("artifacts/ledger.sqlite").exists()


def test_a_rejected_plan_holds_nothing(workplace, small, monkeypatch):
    def refuse(spec):
        raise PlanRejected("cohort 0 would end above the target")

    monkeypatch.setattr("dpal.runs.plan_new_campaign.certified_or_next_best", refuse)
    with pytest.raises(PlanRejected):
        run_campaign(small(name="rejected"))
    assert not Path("artifacts/ledger.sqlite").exists()


@pytest.mark.slow
def test_a_campaign_whose_files_are_gone_is_not_begun_again(workplace, small):
    schedule = {"initial": 30, "queries": [10], "batch_size": 10, "epochs_per_phase": 1}
    config = small(name="gone", schedule=schedule)
    shutil.rmtree(finished(config).root)
    with pytest.raises(LedgerError, match=r"campaign gone, .*are gone"):
        run_campaign(config)
