"""`mlflow models predict` and `serve` in an environment that has what a model requires, no more.

A wheelhouse of torch and MLflow is a gigabyte, and a test asks no index. So the environment has no
packages of its own: its folder of packages holds links to those of this one that the model's
requirements name, and to what those require in turn, as pip would find it out. Everything else,
dpal and Prefect above all, cannot be imported there.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import venv
from importlib import metadata
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.inference.kept_models import MAKERS, as_json

pytestmark = pytest.mark.slow


def required(lines: list[str]) -> set[str]:
    """Names of installed packages that some requirements need, at any depth."""
    found: set[str] = set()
    waiting = [Requirement(line) for line in lines]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        marker, extras = requirement.marker, [*requirement.extras, ""]
        applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        if name in found or not applies:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # pip would say so; a package that is needed is missed by the model
        assert requirement.specifier.contains(package.version, prereleases=True), requirement
        found.add(name)
        waiting += [Requirement(line) for line in package.requires or () if "extra ==" not in line]
    return found


@pytest.fixture(scope="module", params=MAKERS)
def kept(request, tmp_path_factory):
    return MAKERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def alone(kept, tmp_path_factory):
    """Runs Python there, in an empty folder; returns what starts a process."""
    place = tmp_path_factory.mktemp("alone")
    venv.create(place, with_pip=False, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    lines = (kept.folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    for name in required(lines):
        package = metadata.distribution(name)
        tops = {Path(file).parts[0] for file in package.files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(package.locate_file(top))))
    # What starts MLflow's server is found by its name.
    uvicorn = place / "bin" / "uvicorn"
    uvicorn.write_text(f"#!{place}/bin/python\nfrom uvicorn.main import main\nmain()\n")
    uvicorn.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    environment |= {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "1",
    }
    empty = tmp_path_factory.mktemp("empty")

    def start(*arguments: str, **how) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(place / "bin" / "python"), *arguments],
            cwd=empty, env=environment, text=True, start_new_session=True, **how,
        )  # fmt: skip

    return start


@pytest.fixture
def sent(kept, tmp_path) -> Path:
    """The records in a file, as they are sent."""
    rows = as_json(kept.records.drop(columns="id", errors="ignore"))
    path = tmp_path / "records.json"
    path.write_text(json.dumps({"dataframe_records": rows}), encoding="utf-8")
    return path


def test_dpal_is_not_there(alone):
    for package in ("dpal", "prefect", "dvc", "opacus"):
        assert alone("-c", f"import {package}", stderr=subprocess.DEVNULL).wait() == 1
    assert alone("-c", "import torch, mlflow").wait() == 0


def test_mlflow_predicts(kept, alone, sent, tmp_path):
    target = tmp_path / "said.json"
    done = alone("-m", "mlflow", "models", "predict", "-m", str(kept.folder), "-i", str(sent),
                 "-o", str(target), "--env-manager", "local",
                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    output, _ = done.communicate(timeout=300)
    assert done.returncode == 0, output
    require_same(json.loads(target.read_text(encoding="utf-8"))["predictions"], kept.expected)


@pytest.mark.timing
def test_mlflow_serves(kept, alone, sent, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with (tmp_path / "log").open("w") as log:
        server = alone("-m", "mlflow", "models", "serve", "-m", str(kept.folder), "-p", str(port),
                       "-w", "1", "--env-manager", "local", stdout=log, stderr=log)  # fmt: skip
        try:
            address = f"http://127.0.0.1:{port}"
            until = time.monotonic() + 240
            while not _answers(f"{address}/ping"):
                assert time.monotonic() < until and server.poll() is None, Path(
                    log.name
                ).read_text()
                time.sleep(1)
            said = httpx.post(
                f"{address}/invocations", content=sent.read_bytes(), timeout=120,
                headers={"Content-Type": "application/json"},
            )  # fmt: skip
        finally:
            os.killpg(server.pid, signal.SIGTERM)  # MLflow, and the server that it started
            server.wait(timeout=60)
    assert said.status_code == 200, said.text
    require_same(said.json()["predictions"], kept.expected)


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def require_same(predictions: list[dict], expected: pd.DataFrame) -> None:
    said = pd.DataFrame(predictions)
    both = [np.stack(list(frame["probabilities"])) for frame in (said, expected)]
    assert both[0] == pytest.approx(both[1], abs=1e-6)
    assert said["label"].tolist() == expected["label"].tolist()
