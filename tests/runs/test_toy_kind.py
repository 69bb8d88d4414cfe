"""A kind of run in one file has every command, a certificate, a deployment and the automations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dpal.certificate.checks import refuted
from dpal.certificate.document import read_certificate, sealed_certificate
from dpal.certificate.verify import verify
from dpal.errors import PlanRejected, RecordsRegistered
from dpal.runs.execute import run
from dpal.runs.kinds import KINDS
from tests.conftest import write_blobs

ROOT = Path(__file__).parent.parent.parent
MOST_LINES = 80
CALL = """
import sys
import tests.runs.toy
from flows.cli.main import main
sys.argv = ["dpal", *sys.argv[1:]]
main()
"""


def call(*arguments, **environment):
    """A command in a process that knows the kind; its output."""
    # MLflow tells the children of a process where other tests looked.
    known = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_T")}
    done = subprocess.run(
        [sys.executable, "-c", CALL, *arguments],
        capture_output=True, text=True, check=False,
        env={**known, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def place(tmp_path, monkeypatch):
    write_blobs(tmp_path / "pool.parquet", 400, seed=1, labeled=False)
    settings = {"kind": "mean", "name": "toy", "pool": "pool.parquet"}
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def toy(monkeypatch):
    """The module of the kind, which other tests do not know of."""
    from tests.runs import toy

    monkeypatch.setitem(KINDS, "mean", toy.MEAN)
    yield toy
    monkeypatch.undo()
    KINDS.pop("mean", None)


def test_it_is_one_short_file():
    assert len((ROOT / "tests/runs/toy.py").read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_a_promise_that_it_cannot_keep_is_refused(place, toy):
    with pytest.raises(PlanRejected):
        toy.plan(toy.MeanConfig(name="toy", pool=place / "pool.parquet", sigma=0.5))


def test_records_of_a_data_set_are_not_passed_by(place, toy):
    call("data", "register", "clinic", "pool.parquet", "--epsilon", "0.5")
    with pytest.raises(RecordsRegistered):
        run(toy.MeanConfig(name="toy", pool=place / "pool.parquet"))
    assert not (place / "artifacts" / "toy" / "phase-0").exists()


def test_a_certificate_that_leaves_out_what_was_held_is_refuted(place, toy):
    folder = run(toy.MeanConfig(name="toy", pool=place / "pool.parquet"))
    document = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    assert not refuted(verify(document))
    for key, value in (("before", {"campaign": "other"}), ("accountant", "rdp"), ("epsilon", 1.0)):
        forged = json.loads(json.dumps(document))
        held = next(one for one in forged["ledger"]["entries"] if one["kind"] == "hold")
        held["body"][key] = value
        forged.pop("digest")
        assert refuted(verify(sealed_certificate(forged)))


def test_it_has_every_command(place, prefect_api):
    planned = json.loads(call("plan", "toy.yaml", "--explain", "--plots", "figures", "--json"))
    assert planned["epsilon"] <= 2
    assert [Path(path).is_file() for path in planned["plots"]] == [True]
    swept = json.loads(call("plan", "toy.yaml", "--sweep", "sigma=4,1", "--json"))
    assert [row["planned"] for row in swept["rows"]] == [True, False]

    said = call("run", "toy.yaml", PREFECT_API_URL=prefect_api)
    folder = Path(said.split()[-1])
    certificate = (folder / "certificate.json").read_bytes()
    call("run", "toy.yaml", PREFECT_API_URL=prefect_api)  # everything is done
    assert (folder / "certificate.json").read_bytes() == certificate
    assert "toy" in call("status")
    for report in ("report.md", "report.html", "ledger.html"):
        (folder / report).unlink()
    call("report", str(folder))
    assert "epsilon 2 at delta 1e-05" in (folder / "report.md").read_text(encoding="utf-8")
    assert (folder / "report.html").is_file()
    model = str(folder / "phase-0" / "model.safetensors")
    checked = call("verify", str(folder), "--ledger", str(folder), "--model", model, "--key", "own")
    assert "FAILED" not in checked
    promoted = call("promote", "models:/dpal-toy/1", "--reason", "a test", "--ledger", "artifacts")
    assert "champion of dpal-toy" in promoted


def test_it_is_deployed_and_watched_over(place, prefect_api):
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    call("deploy", "toy.yaml", PREFECT_API_URL=prefect_api)
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        made = {deployment.name: deployment for deployment in client.read_deployments()}
        watched = client._client.post("/automations/filter", json={}).json()
    assert made["toy"].entrypoint == "flows.whole_run.mean"
    silent = next(each for each in watched if each["name"] == "dpal: crash silent runs")
    assert "mean" in silent["trigger"]["match_related"]["prefect.resource.name"]
