"""`dpal audit` as a person runs it, on a real Prefect server and MLflow database."""

from __future__ import annotations

import json

import mlflow
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.acquisition.scores import score
from dpal.audit.ids_in_files import released_finding
from dpal.audit.one_draw_per_reservation import ledger_findings
from dpal.config.campaign import parse_config
from dpal.data.labeling_state import write_selection
from dpal.files.artifacts import CampaignFolder
from dpal.mechanisms.gaussian import noisy_sum
from dpal.runs import audit_by_attacks, score_records
from dpal.runs.prepare_campaign import prepare
from dpal.runs.progress_logging import notify
from dpal.training import dp_sgd
from flows.campaign import run_campaign
from tasks.audit import FIGURE, JSON, TEXT
from tests.conftest import small_values, write_config
from tests.flows.calling import call, sentence

pytestmark = pytest.mark.usefixtures("orchestrated")

QUICK = ("--canaries", "60", "--steps", "5", "--draws", "131072")


def the_one(found: dict, words: str):
    """What stands under the only name with these words."""
    [name] = [name for name in found if words in name]
    return found[name]


def test_an_audit_of_a_configuration(workplace, mlflow_uri):
    file = write_config(workplace / "small.yaml", runtime__mlflow_uri=mlflow_uri)
    result = call("audit", str(file), *QUICK)
    assert result.returncode == 0, result.stdout
    said = " ".join(result.stdout.split())
    for words in (
        "checks passed",
        "delta 0.000167, adjacency zero_out, unit record",
        "proportion",
        "No content of the pool was read, so nothing is charged",
        "60 with a",
    ):
        assert words in said
    folder = workplace / "artifacts" / "small" / "audit"
    record = json.loads((folder / JSON).read_text())
    assert record["passed"]
    assert record["charged"].startswith("nothing")
    assert the_one(record["canaries"], "own") == 60
    assert record["false_alarm"] < 1e-4
    # Less was run than planned, and the claim is for what was run.
    assert 0 < record["epsilon_of_what_was_trained"] < record["epsilon"]
    assert {one["layer"] for one in record["findings"]} == {
        "step", "mechanism", "selection", "attack", "ledger"
    }  # fmt: skip
    text = (folder / TEXT).read_text()
    assert f"({FIGURE})" in text
    assert (folder / FIGURE).read_bytes().startswith(b"\x89PNG")
    # Nothing was spent, and no campaign was started.
    assert not list((workplace / "artifacts").glob("**/ledger.sqlite"))
    assert not (workplace / "artifacts" / "small" / "campaign.json").exists()
    mlflow.set_tracking_uri(mlflow_uri)
    runs = mlflow.search_runs(
        experiment_names=["dpal"], filter_string="tags.`dpal.phase` = 'audit'", output_format="list"
    )
    assert runs[0].data.tags["dpal.audit"] == "passed"
    assert runs[0].data.metrics["audit/failed"] == 0


@pytest.mark.slow
def test_defects_are_named_and_end_with_exit_code_1(workplace, mlflow_uri, monkeypatch):
    file = write_config(workplace / "small.yaml", runtime__mlflow_uri=mlflow_uri)
    monkeypatch.setattr(
        dp_sgd, "noisy_sum", lambda total, scale, *, rng: noisy_sum(total, scale / 2, rng=rng)
    )

    def telling(*arguments, **options):
        found = score(*arguments, **options)
        notify(f"highest score {found.max():.6f}")
        return found

    monkeypatch.setattr(score_records, "score", telling)
    result = call("audit", str(file), *QUICK, "--json")
    assert result.returncode == 1
    record = json.loads(result.stdout)
    assert not record["passed"]
    found = {one["what"] for one in record["findings"] if not one["passed"]}
    assert any("rehearsed selection" in what for what in found)
    likely = [one["likely"] for one in record["findings"] if not one["passed"]]
    assert any("by noise_multiplier" in one for one in likely)


@pytest.mark.slow
def test_an_audit_of_a_campaign_reads_its_ledger_and_files(workplace, mlflow_uri):
    values = small_values(
        runtime__mlflow_uri=mlflow_uri, schedule__queries=[40], schedule__epochs_per_phase=1
    )
    config = parse_config(values)
    folder = CampaignFolder(workplace / run_campaign(config))
    result = call("audit", str(folder.root), *QUICK, "--json")
    assert result.returncode == 0, result.stdout
    findings = {one["what"]: one for one in json.loads(result.stdout)["findings"]}
    assert the_one(findings, "two artifacts")["measured"] == "none"
    assert the_one(findings, "as planned")["measured"] == "none"
    again = folder.phase(1).model
    again.write_bytes(again.read_bytes()[::-1])  # another draw under the same reservation
    campaign = prepare(config)
    with campaign.ledger() as ledger:
        found = [one for one in ledger_findings(campaign.plan, ledger) if not one.passed]
    assert [one.measured for one in found] == ["phase-1/training"]
    assert "drawn twice" in found[0].likely


def test_ids_in_a_released_file_are_found(tmp_path):
    folder = tmp_path / "campaign"
    (folder / "confidential").mkdir(parents=True)
    (folder / "confidential" / "selection.txt").write_text("r-00007")
    (folder / "report.md").write_text("accuracy 91 %, r-000071, xr-00007; r, 00007 records")
    everyone = [f"r-{number:05}" for number in range(2_000)]
    sound = released_finding(folder, everyone)
    assert sound.passed and sound.measured == "none"
    (folder / "report.md").write_text("first of them: r-00007.")
    pq.write_table(pa.table({"name": ["r-01999"]}), folder / "labels.parquet")
    (folder / "model.bin").write_bytes(bytes(range(256)) * 9 + b'\0{"of": "r-00100"}\xff\0')
    (folder / "words.txt").write_text("größe r-00008", encoding="utf-8")
    found = released_finding(folder, iter(everyone))
    assert not found.passed
    assert found.measured.split(", ") == ["labels.parquet", "model.bin", "report.md", "words.txt"]
    # Numbers cannot be told from others, and short names not from words.
    assert released_finding(folder, ["7", "00007", "first", "r-1"]).measured == "report.md"
    assert released_finding(folder, ["7", "00007", "r-1"]) == sound


@pytest.mark.slow
def test_what_an_audit_finds_in_files_does_not_depend_on_who_was_selected(
    workplace, mlflow_uri, monkeypatch
):
    values = small_values(privacy__selection="hidden", runtime__mlflow_uri=mlflow_uri)
    campaign = prepare(parse_config(values))
    looked_for: list[str] = []

    def watched(folder, ids):
        looked_for.extend(ids)
        return released_finding(folder, looked_for)

    monkeypatch.setattr(audit_by_attacks, "released_finding", watched)
    before = audit_by_attacks._of_what_was_run(campaign)
    everyone = pq.read_table(values["data"]["pool"], columns=["id"]).column("id").to_pylist()
    assert looked_for == everyone
    phase = campaign.plan.labeling_phases[0]
    selection = campaign.files(phase).selection
    selection.parent.mkdir(parents=True)
    rows = np.array([3, 5])
    write_selection(campaign.pool, rows, np.zeros(0, np.int64), selection)
    assert audit_by_attacks._of_what_was_run(campaign) == before


def test_what_cannot_be_audited_is_refused_in_one_sentence(workplace):
    assert "does not exist" in sentence(call("audit", "nowhere.yaml"))
    assert "dpal status" in sentence(call("audit", str(workplace)))
    assert "--set changes" in sentence(call("audit", str(workplace), "--set", "privacy.epsilon=3"))
