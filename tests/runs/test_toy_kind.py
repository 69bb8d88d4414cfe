"""A kind of run in one file has every command, a certificate, a deployment and the automations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dpal.certificate.check_outcome import any_failed
from dpal.certificate.read_and_seal import read_certificate, sealed_certificate
from dpal.certificate.verify import verify_certificate
from dpal.errors import PlanRejected, RecordsRegistered
from dpal.runs.execute import execute_run
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


@pytest.fixture
def call(prefect_api, forked):
    """Runs a command in a process of its own that knows the kind; gives its output."""

    def run_command(*arguments):
        done = forked.run(CALL, *arguments, PREFECT_API_URL=prefect_api)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_command


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
        toy.MeanRuns().plan(toy.MeanConfig(name="toy", pool=place / "pool.parquet", sigma=0.5))


def test_records_of_a_data_set_are_not_passed_by(place, toy, call):
    call("data", "register", "clinic", "pool.parquet", "--epsilon", "0.5")
    with pytest.raises(RecordsRegistered):
        execute_run(toy.MeanConfig(name="toy", pool=place / "pool.parquet"))
    assert not (place / "artifacts" / "toy" / "phase-0").exists()


def test_a_certificate_that_leaves_out_what_was_held_is_refuted(place, toy):
    folder = execute_run(toy.MeanConfig(name="toy", pool=place / "pool.parquet"))
    document = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    assert not any_failed(verify_certificate(document))
    for key, value in (("before", {"campaign": "other"}), ("accountant", "rdp"), ("epsilon", 1.0)):
        forged = json.loads(json.dumps(document))
        held = next(one for one in forged["ledger"]["entries"] if one["kind"] == "hold")
        held["body"][key] = value
        forged.pop("digest")
        assert any_failed(verify_certificate(sealed_certificate(forged)))


@pytest.mark.slow
def test_it_has_every_command(place, call):
    planned = json.loads(call("plan", "toy.yaml", "--explain", "--plots", "figures", "--json"))
    assert planned["epsilon"] <= 2
    assert [Path(path).is_file() for path in planned["plots"]] == [True]
    swept = json.loads(call("plan", "toy.yaml", "--sweep", "sigma=4,1", "--json"))
    assert [row["planned"] for row in swept["rows"]] == [True, False]

    said = call("run", "toy.yaml")
    folder = Path(said.split()[-1])
    certificate = (folder / "certificate.json").read_bytes()
    call("run", "toy.yaml")  # everything is done
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
    audited = json.loads(call("audit", str(folder), "--json"))
    assert audited["passed"]
    assert {"ledger"} == {finding["layer"] for finding in audited["findings"]}
    promoted = call("promote", "models:/dpal-toy/1", "--reason", "a test", "--ledger", "artifacts")
    assert "champion of dpal-toy" in promoted


@pytest.mark.slow
def test_it_is_deployed_and_watched_over(place, call, prefect_api):
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    call("deploy", "toy.yaml")
    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        made = {deployment.name: deployment for deployment in client.read_deployments()}
        watched = client._client.post("/automations/filter", json={}).json()
    assert made["toy"].entrypoint == "flows.whole_run.mean"
    silent = next(each for each in watched if each["name"] == "dpal: crash silent runs")
    assert "mean" in silent["trigger"]["match_related"]["prefect.resource.name"]
