"""DVC's remote and MLflow's artifacts in a bucket, beside the store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import httpx
import pytest

from tests.conftest import command, write_blobs, write_config
from tests.scale.place import await_answer, free_port

pytestmark = pytest.mark.slow


def test_phases_come_back_by_dvc_and_the_certificate_by_mlflow(tmp_path, prefect_api, s3):
    for module in ("dvc_s3", "boto3"):  # of DVC and of MLflow; the store itself needs neither
        pytest.importorskip(module, reason="NO BUCKETS FOR DVC AND MLFLOW: pip install 'dpal[s3]'")
    write_blobs(tmp_path / "pool.parquet", 600, seed=1)
    write_blobs(tmp_path / "validation.parquet", 300, seed=2, prefix="v")
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    write_config(
        tmp_path / "small.yaml",
        schedule__queries=[],
        runtime={"dvc_remote": f"{s3}/campaigns", "mlflow_uri": uri},
    )
    environment = {**os.environ, "PREFECT_API_URL": prefect_api, "DVC_NO_ANALYTICS": "1"}
    with (tmp_path / "mlflow.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{tmp_path / 'mlflow.sqlite'}",
             "--artifacts-destination", f"{s3}/mlflow"],
            stdout=log, stderr=log, env=environment,
        )  # fmt: skip
    try:
        await_answer(f"{uri}/health", server)
        done = subprocess.run(
            [command(), "run", "small.yaml"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        logged = artifacts_of_newest_run(uri)
        assert {"certificate.json", "certificate.dsse.json", "report.dsse.json"} <= set(logged)
    finally:
        server.terminate()
        server.wait(60)

    artifacts, there = tmp_path / "artifacts", tmp_path / "elsewhere"
    phase = artifacts / "small" / "phase-0"
    before = {path.name: path.read_bytes() for path in phase.iterdir()}
    (there / "small").mkdir(parents=True)
    shutil.copytree(artifacts / ".dvc", there / ".dvc", ignore=shutil.ignore_patterns("cache"))
    shutil.copy(artifacts / "small" / "phase-0.dvc", there / "small")
    pulled = subprocess.run(
        [sys.executable, "-m", "dvc", "pull", "small/phase-0.dvc"],
        cwd=there, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert pulled.returncode == 0, pulled.stderr
    found = {path.name: path.read_bytes() for path in (there / "small" / "phase-0").iterdir()}
    assert found == before


def artifacts_of_newest_run(uri: str) -> set[str]:
    """Names of what the campaign's run has at its top."""
    api = f"{uri}/api/2.0/mlflow"
    experiments = httpx.post(f"{api}/experiments/search", json={"max_results": 10}).json()
    ids = [one["experiment_id"] for one in experiments["experiments"]]
    runs = httpx.post(f"{api}/runs/search", json={"experiment_ids": ids}).json()["runs"]
    found: set[str] = set()
    for run in runs:
        listed = httpx.get(f"{api}/artifacts/list", params={"run_id": run["info"]["run_id"]})
        found |= {one["path"] for one in listed.json().get("files", [])}
    return found
