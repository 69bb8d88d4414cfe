"""The command as a person meets it: real processes, real exit codes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dpal.files.artifacts import CampaignFolder
from tests.conftest import command, write_config
from tests.flows.calling import Result, call, sentence

COMMANDS = [
    ("init",),
    ("plan",),
    ("run",),
    ("label",),
    ("status",),
    ("report",),
    ("ledger", "show"),
    ("ledger", "verify"),
    ("ledger", "adopt"),
    ("ledger", "export"),
    ("ledger", "page"),
    ("audit",),
    ("doctor",),
    ("simulate",),
    ("rehearse",),
]

PLAN_KEYS = {
    "adjacency",
    "delta",
    "target_epsilon",
    "phases",
    "cohorts",
    "never_selected_epsilon",
    "worst_epsilon",
}
PHASE_KEYS = {
    "phase",
    "steps",
    "noise_multiplier",
    "sample_rate_old",
    "sample_rate_new",
    "expected_batch_size",
    "cohort_size",
}
COHORT_KEYS = {"cohort", "size", "selection_epsilon", "epsilon_rdp", "epsilon_pld"}


@pytest.fixture
def called() -> Callable[..., Result]:
    """The command, called in this process."""
    return call


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(called, command):
    shown = called(*command, "--help")
    assert shown.returncode == 0
    assert "Example: dpal " + " ".join(command) in shown.stdout


@pytest.mark.slow
def test_the_installed_command_answers():
    for given, answer in (["--version"], "dpal 0."), ([], "Commands:"):
        done = subprocess.run([command(), *given], capture_output=True, text=True, check=True)
        assert answer in done.stdout


def test_the_plan_is_one_json_object(called, workplace):
    write_config(workplace / "c.yaml")
    result = called("plan", "c.yaml", "--json", "--set", "privacy.epsilon=3")
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert set(plan) >= PLAN_KEYS
    assert all(set(phase) >= PHASE_KEYS for phase in plan["phases"])
    assert plan["selection"] == "visible"
    assert plan["phases"][1]["selection"][-1]["mechanism"] == "anchored_answers"
    assert all(set(cohort) >= COHORT_KEYS for cohort in plan["cohorts"])
    assert plan["target_epsilon"] == 3
    assert plan["worst_epsilon"] <= 3
    assert 0 < plan["never_selected_epsilon"] < 0.75  # a "no" costs less than a "yes"
    assert [phase["cohort_size"] for phase in plan["phases"]] == [100, 40, 40]
    assert not Path("artifacts").exists()


def test_the_plan_is_a_table_for_people(called, workplace):
    write_config(workplace / "c.yaml")
    shown = called("plan", "c.yaml").stdout
    assert "Plan by" in shown
    assert "never selected" in shown
    assert "adjacency zero_out" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "none.yaml"), "init NAME"),
        (("run", "c.yaml", "--set", "privacy.epsilom=3"), "mean privacy.epsilon?"),
        (("run", "c.yaml", "--set", "privacy.epsilon"), "--set takes"),
        (("run", "c.yaml", "--set", "data.pool=none.parquet"), "none.parquet does"),
        (("plan", "c.yaml", "--set", "privacy.delta=0.1"), "below 1/600"),
        (("plan", "c.yaml", "--set", "schedule.initial=5000"), "asks for 5,080 labels"),
        (("plan", "broken.yaml"), "readable YAML (line 2)"),
        (("plan", "c.yaml", "--jsn"), "No such option"),
        (("plan",), "Missing argument"),
        (("report", "nowhere"), "nowhere is not"),
        (("ledger", "show", "nowhere"), "nowhere is not"),
        (("label", "nowhere", "labels.csv"), "nowhere is not"),
        (("run", "c.yaml", "--set", "runtime.device=gpu9"), "runtime.device 'gpu9' is"),
    ],
)
def test_errors_are_one_sentence_and_code_2(called, orchestrated, workplace, arguments, said):
    write_config(workplace / "c.yaml")
    (workplace / "broken.yaml").write_text("name: x\n  bad: [")
    assert said in sentence(called(*arguments))


@pytest.mark.slow
def test_init_writes_what_plan_can_read(called, workplace):
    assert called("init", "clinic").returncode == 0
    text = Path("clinic.yaml").read_text()
    assert yaml.safe_load(text)["name"] == "clinic"
    assert yaml.safe_load(text)["acquisition"] == "auto"
    assert text.count("#") > 15
    assert "exists already" in sentence(called("init", "clinic"))
    own = [
        "--set",
        "data.pool=pool.parquet",
        "--set",
        "data.validation=validation.parquet",
        "--set",
        "acquisition=entropy",
    ]  # what `auto` tries takes longer than all else
    small = [
        "--set",
        "model={name: logistic}",
        "--set",
        "schedule={initial: 100, queries: [200], batch_size: 100}",
    ]
    assert called("plan", "clinic.yaml", *own, *small).returncode == 0


@pytest.fixture
def campaign(dpal, workplace, mlflow_uri):
    schedule = {"initial": 60, "queries": [20], "batch_size": 20, "epochs_per_phase": 1}
    write_config(workplace / "c.yaml", schedule=schedule, runtime__mlflow_uri=mlflow_uri)
    result = dpal("run", "c.yaml")
    assert result.returncode == 0, result.stderr
    return result


@pytest.mark.slow
def test_a_campaign_from_run_to_tampering(called, campaign):
    """One campaign, looked at with every reading command, then altered."""
    assert campaign.stdout.splitlines()[-1] == "artifacts/small"
    for line in (
        "report:   artifacts/small/report.md",
        "small/model_card.md",
        "mlflow ui --backend",
        "Prefect:  open",
    ):
        assert line in campaign.stdout
    assert "Traceback" not in campaign.stderr

    assert "finished" in called("status").stdout
    manifest = CampaignFolder(Path("artifacts/small")).phase(1).manifest
    manifest.rename("away")
    ends = threading.Timer(1.0, Path("away").rename, [manifest])
    ends.start()
    watched = called("status", "artifacts/small", "--watch").stdout
    ends.join()
    assert watched.index("1/2") < watched.index("2/2")
    assert watched.count("Campaigns") == 2  # one table a change
    assert called("report", "artifacts/small").stdout.strip() == "artifacts/small/report.md"

    view = json.loads(called("ledger", "show", "artifacts/small", "--json").stdout)
    assert [release["release"] for release in view["releases"]] == [
        "phase-0/training",
        "phase-1/selection",
        "phase-1/training",
    ]
    assert view["campaign_epsilon"] <= 8
    shown = called("ledger", "show", "artifacts/small").stdout
    assert "poisson" in shown

    sound = called("ledger", "verify", "artifacts/small")
    assert sound.returncode == 0
    assert sound.stdout.startswith("sound: 9 entries")

    ledger = Path("artifacts/ledger.sqlite")
    content = ledger.read_bytes()
    # One byte of one entry, in the file itself: the noise multiplier's name in entry 4 or so.
    raw = sqlite3.connect(ledger)
    body = raw.execute("SELECT body FROM entries WHERE sequence = 4").fetchone()[0]
    raw.close()
    place = content.index(body.encode())
    ledger.write_bytes(content[:place] + b"[" + content[place + 1 :])
    broken = called("ledger", "verify", "artifacts/small")
    assert broken.returncode == 1
    assert "broken: ledger entry 4 was altered" in broken.stdout
    refused = called("ledger", "show", "artifacts/small")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr


def test_doctor_finds_what_is_missing(called, workplace, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("DPAL_ALLOW", str(workplace / "no-list.yaml"))
    write_config(workplace / "c.yaml")
    healthy = called("doctor", "--config", "c.yaml")
    assert healthy.returncode == 0, healthy.stdout
    assert "temporary one" in healthy.stdout
    write_config(
        workplace / "c.yaml", data__pool="gone.parquet", runtime__mlflow_uri="http://127.0.0.1:9"
    )
    ill = called("doctor", "--config", "c.yaml")
    assert ill.returncode == 2
    assert "gone.parquet missing" in ill.stdout
    assert "does not answer" in ill.stdout


@pytest.mark.slow
def test_a_dead_mlflow_server_is_found_before_anything_is_spent(called, orchestrated, workplace):
    write_config(workplace / "c.yaml", runtime__mlflow_uri="http://127.0.0.1:9")
    refused = called("run", "c.yaml")
    assert refused.returncode == 2
    said = refused.stderr.splitlines()[-1]
    assert "http://127.0.0.1:9 did" in said
    assert "Traceback" not in refused.stderr
    assert not Path("artifacts/ledger.sqlite").exists()


def test_what_dvc_lacks_for_its_remote_is_found_before_anything_is_spent(
    called, orchestrated, workplace, monkeypatch
):
    monkeypatch.setattr("tasks.version_with_dvc.find_spec", lambda name: None)
    write_config(workplace / "c.yaml", runtime__dvc_remote="oss://bucket/remote")
    refused = called("run", "c.yaml")
    assert refused.returncode == 2
    assert "pip install dvc-oss" in refused.stderr.splitlines()[-1]
    assert not Path("artifacts/ledger.sqlite").exists()
    ill = called("doctor", "--config", "c.yaml")
    assert "pip install dvc-oss" in " ".join(ill.stdout.split())


@pytest.mark.slow
def test_labels_are_delivered_from_anywhere(
    called, orchestrated, workplace, mlflow_uri, monkeypatch
):
    schedule = {"initial": 20, "queries": [5], "batch_size": 10, "epochs_per_phase": 1}
    write_config(
        workplace / "c.yaml",
        schedule=schedule,
        labeler__kind="file",
        runtime__mlflow_uri=mlflow_uri,
    )
    paused = called("run", "c.yaml")
    assert paused.returncode == 0
    assert "paused: labels" in paused.stdout
    assert paused.stdout.splitlines()[-1] == "artifacts/small"
    assert "waits for labels" in called("status").stdout
    query = (
        (workplace / "artifacts/small/confidential/query/phase-0/query.csv")
        .read_text()
        .splitlines()
    )
    (workplace / "labels.csv").write_text("\n".join([query[0], *(f"{row}0" for row in query[1:])]))
    elsewhere = workplace / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    delivered = called("label", "../artifacts/small", "../labels.csv")
    assert delivered.returncode == 0, delivered.stderr
    assert "20 labels accepted" in delivered.stdout
    assert not list(elsewhere.iterdir())
    assert (workplace / "artifacts/small/phase-0/manifest.json").exists()
    again = called("label", "../artifacts/small", "../labels.csv")
    assert again.returncode == 2
    assert "gives an id that was not asked for" in again.stderr or "give an id" in again.stderr


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (("plan", "none.yaml"), "dpal init"),
        (("watch", "none.yaml", "--once"), "new-data.md"),
        (("capc", "site", "--config", "none.yaml"), "capc.md"),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) else None,
)
def test_whoever_has_no_file_is_told_where_such_a_file_comes_from(workplace, asked, shown):
    assert shown in sentence(call(*asked))
