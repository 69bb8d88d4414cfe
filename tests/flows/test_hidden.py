"""What a campaign in the hidden mode leaves behind is searched for who and how many.

Ids of the pool are words that occur nowhere else, and real numbers of selections have four
digits, so that a plain search finds a leak.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import mlflow
import pyarrow.parquet as pq
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.logging.handlers import APILogWorker

from dpal.data.labeling_state import read_selection
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.stamped_day import today_in_utc
from tests.conftest import flows_at, write_blobs, write_config
from tests.flows.calling import call
from tests.flows.leaks import counted, files_below, naming, planned_numbers, text_of, times_in
from tests.flows.test_campaign import last_flow_run, runs_of

pytestmark = pytest.mark.slow

IDS = "patient-zq"
FOLDER = "artifacts/unseen"
READING = [("status",), ("report", FOLDER), ("ledger", "show", FOLDER),
           ("ledger", "show", FOLDER, "--json"), ("ledger", "verify", FOLDER),
           ("ledger", "show", FOLDER, "--by", "time"), ("ledger", "page", FOLDER),
           ("ledger", "show", "artifacts", "--by", "data"),
           ("ledger", "export", "artifacts", "--to", "artifacts/all.csv")]  # fmt: skip
UNREADABLE = {".png", ".safetensors"}  # for numbers; ids are looked for in them, too
SCHEDULE = {"initial": 1000, "queries": [1500, 1500], "batch_size": 250, "epochs_per_phase": 1}


@pytest.fixture(scope="module")
def finished(prefect_api, prefect_home, tmp_path_factory):
    """One campaign through the command, its files as open as the most careless umask allows."""
    place, umask = tmp_path_factory.mktemp("hidden"), os.umask
    write_blobs(place / "pool.parquet", 6000, seed=1, prefix=IDS)
    write_blobs(place / "validation.parquet", 300, seed=2, prefix="v")
    with pytest.MonkeyPatch.context() as patch, flows_at(prefect_api):
        patch.chdir(place)
        day = today_in_utc().isoformat()
        write_config(
            place / "c.yaml",
            name="unseen",
            strategy="naive",
            privacy={"selection": "hidden", "secret_draw": True},
            schedule=SCHEDULE,
            runtime__dvc_remote="remote",
        )
        with pytest.MonkeyPatch.context() as careless:
            careless.setattr("os.umask", lambda mask: umask(0))
            outputs = [call("run", "c.yaml")]
        umask(0o022)
        outputs += [call(*words) for words in READING]
        assert [one.returncode for one in outputs] == [0] * len(outputs), outputs
        folder, prefect = CampaignFolder(place / FOLDER), prefect_says("unseen")
        prefect += "\n".join(trained_says(f"unseen-phase-{phase}") for phase in range(3))
    return SimpleNamespace(
        place=place,
        day=day,
        folder=folder,
        terminal="\n".join(one.stdout + one.stderr for one in outputs),
        prefect=prefect,
        server=prefect_home / "prefect.db",
        selected=[read_selection(folder.phase(index).selection) for index in range(3)],
    )


def prefect_says(name: str) -> str:
    """Run, parameters, states, artifacts and logs of a flow run, as its page shows them."""
    APILogWorker.drain_all(timeout=30)
    run, artifacts = last_flow_run(name)
    own = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id]))
    with get_client(sync_client=True) as client:
        pages = [client.read_logs(log_filter=own, limit=200, offset=i * 200) for i in range(3)]
    said = [log.message for page in pages for log in page]
    assert any("phase-2: labels received" in line for line in said)  # the logs are all there
    shown = [f"{one.key} {one.description} {one.data}" for one in artifacts.values()]
    return "\n".join([run.model_dump_json(), *shown, *said])


def trained_says(name: str) -> str:
    """The same of a run that trained a phase."""
    run, artifacts = last_flow_run(name)
    assert artifacts, "its progress is shown"
    return run.model_dump_json() + "".join(
        f"{one.description}{one.data}" for one in artifacts.values()
    )


def public_files(finished) -> Iterator[Path]:
    """Everything but the confidential folder, the pool's own state and the local cache."""
    artifacts, folder = finished.place / "artifacts", finished.folder
    kept = [folder.root / "confidential", folder.start, artifacts / ".dvc" / "cache"]
    for path in files_below(artifacts, finished.place / "remote"):
        if path.is_file() and not any(path.is_relative_to(one) for one in kept):
            yield path


def test_it_selected_within_its_budget(finished):
    """The campaign is a real one: gates let some pass, and never too many.

    A gate's confirming count accepts nobody in about `IN_VAIN` of the queries, as planned; that
    both do happens in 1 of 2,500 campaigns.
    """
    sizes = [len(names) for names in finished.selected]
    assert 800 < sizes[0] <= 1200  # by coins: 29 is one standard deviation
    passed = [size for size in sizes[1:] if size]
    assert passed
    assert all(size > 1200 for size in passed)
    assert sum(passed) <= 3000
    names = [name for part in finished.selected for name in part]
    assert len(set(names)) == len(names)
    phases = finished.folder.finished_phases()
    assert [phase["labels"] for phase in phases] == [1000, 2500, 4000]  # as planned, not as bought
    assert 7.9 < phases[-1]["campaign_epsilon"] <= 8


def test_no_id_is_in_any_file_that_may_be_seen(finished):
    searched = list(public_files(finished))
    below = {path.relative_to(finished.place).parts[:2] for path in searched}
    assert {("artifacts", "unseen"), ("artifacts", "mlflow")} <= below
    assert {path.name for path in searched} >= {
        "ledger.sqlite", "mlflow.sqlite", "ledger.parquet", "model.safetensors", "manifest.json",
        "metrics.json", "report.md", "campaign.json", "phase-1.dvc", "plan.json", "ledger.html",
        "report.html", "all.csv",
    }  # fmt: skip
    assert naming([IDS], searched) == set()


def test_no_id_reached_prefect_or_the_terminal(finished):
    planned = finished.folder.read_record()["plan"]["phases"][1]["threshold_search"]
    assert f"about {planned['aim']:,} records" in finished.terminal
    assert f"about {planned['aim']:,} records" in finished.prefect
    assert IDS not in finished.terminal
    assert IDS not in finished.prefect
    assert naming([IDS], [finished.server]) == set()
    assert naming(["unseen"], [finished.server])  # what the server does know


def test_no_row_of_the_pool_is_named(finished):
    """A selection by row numbers is one, too: four of four digits do not occur by chance."""
    ids = pq.read_table(finished.place / "pool.parquet", columns=["id"]).column(0).to_pylist()
    rows = {name: row for row, name in enumerate(ids)}
    texts = [*map(text_of, public_files(finished)), finished.terminal, finished.prefect]
    for names in filter(None, finished.selected):  # a gate may have let nobody pass
        middle = len(names) // 2  # the first rows may be small numbers, which are everywhere
        some = [str(rows[name]) for name in names[middle : middle + 4]]
        listed = re.compile(r"\b" + r"[\s,;\[\]()]{1,6}".join(some) + r"\b")
        assert listed.search(", ".join(some))
        assert not any(listed.search(text) for text in texts)


def test_how_many_were_selected_is_told_nowhere(finished):
    """Numbers of the plan are public; what the gates let pass is not."""
    public = planned_numbers(finished.folder)
    assert 1500 in public
    first, second, third = (len(names) for names in finished.selected)
    secret = {first, second, third, first + second, first + second + third, 6000 - first - second}
    told = [text_of(path) for path in public_files(finished) if path.suffix not in UNREADABLE]
    assert len(told) > 20
    told += [finished.terminal, finished.prefect]
    for number in secret - public - {0}:
        assert not any(counted(number, text) for text in told), number
    assert any(counted(1500, text) for text in told)  # the search finds what is public


def test_no_time_is_in_any_file_that_may_be_seen(finished):
    """Durations follow how many were selected. MLflow's database is looked at below."""
    now, noon = time.time(), f"{finished.day} 12:00:00"
    found = {}
    for path in public_files(finished):
        if path.suffix not in UNREADABLE and not path.name.startswith("mlflow.sqlite"):
            found[path] = times_in(text_of(path).replace(noon, ""), now)
    assert len(found) > 20
    assert not {path: times for path, times in found.items() if times}
    assert times_in(f"{datetime.now(UTC).isoformat()} {int(1000 * now)} 12:61:00", now) >= {
        f"{int(1000 * now)}"
    }


def test_every_entry_carries_the_day_of_the_hold(finished):
    with closing(LedgerStore(finished.place / "artifacts" / "ledger.sqlite")) as store:
        assert {one.recorded_at for one in store.verified()} == {finished.day}


def test_mlflow_is_told_that_day_and_no_time(finished):
    noon = int(datetime.fromisoformat(f"{finished.day}T12:00:00+00:00").timestamp() * 1000)
    parent, children = runs_of(finished.place)
    client = mlflow.MlflowClient()
    for run in (parent, *children):
        assert (run.info.start_time, run.info.end_time) == (noon, noon)
        for name in run.data.metrics:
            history = client.get_metric_history(run.info.run_id, name)
            assert {one.timestamp for one in history} == {noon}
        told = {**run.data.params, **run.data.tags}
        assert not times_in(" ".join(f"{key} {value}" for key, value in told.items()), time.time())
    [version] = client.search_model_versions("name = 'dpal-unseen'")
    assert not times_in(str(version.tags), time.time())


def test_mlflow_has_no_selection_file(finished):
    parent, children = runs_of(finished.place)
    for run in (parent, *children):
        paths = [run.info.artifact_uri, *listed(run.info.run_id)]
        for word in ("confidential", "selection", "labels", "pool"):
            assert not any(word in path for path in paths)
        own = {**run.data.params, **run.data.tags, **run.data.metrics}
        assert not any("confidential" in f"{key} {value}" for key, value in own.items())
    metrics = {"validation_accuracy", "labels", "campaign_epsilon", "worst_epsilon"}
    metrics |= {"validation_records", "validation_standard_error"}
    # What the model is worth on the validation set, which is public here.
    metrics |= {"validation_majority", "validation_gain_standard_error"}
    metrics |= {"validation_balanced_accuracy", "validation_macro_auc"}
    metrics |= {"validation_macro_auc_standard_error"}
    rest = set(parent.data.metrics) - metrics
    cohorts = ("epsilon_rdp/cohort_", "epsilon_pld/cohort_")
    known = (*cohorts, "validation_recall/class_", "validation_auc/class_")
    assert all(name.startswith(known) for name in rest)


def listed(run_id: str, path: str = "") -> Iterator[str]:
    for one in mlflow.artifacts.list_artifacts(run_id=run_id, artifact_path=path):
        yield one.path
        if one.is_dir:
            yield from listed(run_id, one.path)


def test_confidential_files_are_the_owners_alone(finished):
    place = finished.folder.root / "confidential"
    folders = [place, *(one for one in place.iterdir() if one.is_dir())]
    assert len(folders) == 4
    for one in folders:
        assert one.stat().st_mode & 0o777 == 0o700, one
    files = [one for folder in folders[1:] for one in folder.iterdir()]
    assert len(files) == 9
    for one in files:
        assert one.stat().st_mode & 0o777 == 0o600, one


def test_whatever_holds_an_id_is_out_of_others_reach(finished):
    """The local cache of versions holds copies; a closed folder stands before each file."""
    holding = naming([IDS], files_below(finished.place / "artifacts"))
    cached = [path for path in holding if "cache" in path.parts]
    assert len(holding) == 1 + 9 + len(cached)  # the start, three phases
    assert len(cached) >= 9
    for path in holding:
        inner = path.parents[: path.parents.index(finished.place / "artifacts") + 1]
        closed = any(folder.stat().st_mode & 0o077 == 0 for folder in inner)
        assert closed or path.stat().st_mode & 0o077 == 0, path


def test_confidential_phases_are_not_pushed(finished):
    pushed = {path.parent.name + path.name for path in files_below(finished.place / "remote")}

    def version(place: Path, phase: int) -> str:
        pointer = yaml.safe_load((place / f"phase-{phase}.dvc").read_text(encoding="utf-8"))
        return str(pointer["outs"][0]["md5"])

    for phase in range(3):
        assert version(finished.folder.root, phase) in pushed
        assert version(finished.folder.root / "confidential", phase) not in pushed


def test_the_search_finds_what_is_there(finished, tmp_path):
    """Power: an id in a compressed column, in a database's log, in a text; a number by itself."""
    name = finished.selected[0][0]
    compressed = finished.folder.phase(0).selection
    database, text = tmp_path / "runs.sqlite", tmp_path / "params"
    writing = sqlite3.connect(database)
    writing.execute("PRAGMA journal_mode=WAL")
    writing.execute("CREATE TABLE params (value TEXT)")
    writing.execute("INSERT INTO params VALUES (?)", (name,))
    writing.commit()
    text.write_text(f"selected {name}")
    assert naming([name], [compressed, database, text]) == {compressed, database, text}
    assert naming([name + "0"], [compressed, database, text]) == set()
    writing.close()
    for told in ("1437 labels", "1,437 labels", '"labels": 1437.0}', "(1437)"):
        assert counted(1437, told)
    assert not counted(1437, "a1437 0.1437 21437 x-1437 1437.5 1437ab 1,437,000 14.37")


def test_its_audit_finds_nothing_that_leaves(finished):
    """Of all layers the one about files: the others are the same in every mode."""
    from dpal.audit.ids_in_files import released_finding

    everyone = [name for selected in finished.selected for name in selected]
    assert released_finding(finished.folder.root, everyone).measured == "none"
