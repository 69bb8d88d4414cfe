"""Runs as experiments of DVC, with git and DVC as a person has them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.cli.dvc_stage import write_stage
from tests.conftest import write_config
from tests.flows.calling import call

HERE = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b", "DVC_NO_ANALYTICS": "1"}  # fmt: skip


def by_hand(*command: str, api: str = "") -> str:
    """What a command of git or DVC says; `dpal` is found beside this interpreter."""
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ["PATH"]])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={**os.environ, **HERE, "PATH": path, "PREFECT_API_URL": api},
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_experiments_are_run_compared_and_drawn_by_dvc(workplace, orchestrated):
    write_config(Path("small.yaml"), privacy__epsilon=8.0)
    write_stage(Path("small.yaml"))
    Path(".gitignore").write_text("artifacts/\n*.parquet\n", encoding="utf-8")
    for command in ("git init -q", "dvc init -q", "dvc repro", "git add -A", "git commit -qm one"):
        by_hand(*command.split(), api=orchestrated)
    by_hand(
        "dvc", "exp", "run", "--set-param", "small.yaml:name=strict",
        "--set-param", "small.yaml:privacy.epsilon=2", "--name", "strict", api=orchestrated,
    )  # fmt: skip
    shown = {row["rev"]: row for row in json.loads(by_hand("dvc", "exp", "show", "--json"))}
    head = next(row for rev, row in shown.items() if rev != "workspace")
    found = [head["data"], head["experiments"][0]["revs"][0]["data"]]
    epsilons = [one["metrics"]["results/metrics.json"]["data"]["epsilon"] for one in found]
    assert [one["promised"] for one in epsilons] == [8.0, 2.0]
    assert all(0 < one["spent"] <= one["promised"] for one in epsilons)
    assert [one["params"]["small.yaml"]["data"]["name"] for one in found] == ["small", "strict"]
    change = json.loads(by_hand("dvc", "metrics", "diff", "HEAD", "strict", "--json"))
    assert change["results/metrics.json"]["epsilon.promised"]["diff"] == -6.0
    plots = json.loads(by_hand("dvc", "plots", "diff", "HEAD", "strict", "--json"))["data"]
    pictures = {"results/validation.png", "results/epsilon.png"}
    assert set(plots) == {"validation by labels", "epsilon by labels", *pictures}
    # Its page shows these where there is no internet, which the others need.
    page = Path(by_hand("dvc", "plots", "diff", "HEAD", "strict").strip().removeprefix("file://"))
    assert page.read_text(encoding="utf-8").count("<img") == len(pictures) * 2
    points = plots["validation by labels"][0]["content"]["data"]["values"]
    for revision in ("HEAD", "strict"):
        labels = [int(point["labels"]) for point in points if point["rev"] == revision]
        assert labels == [100, 140, 180]


def test_init_writes_a_stage_of_the_data_and_leaves_one_that_is_there_alone(workplace):
    asked = ("--data", "pool.parquet", "--validation", "validation.parquet", "--dvc")
    done = call("init", "mine", *asked, "--why-public", "made up")
    assert done.returncode == 0, done.stderr
    stage = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"]["run"]
    assert stage["deps"] == ["pool.parquet", "validation.parquet"]
    assert stage["cmd"] == [
        "dpal run mine.yaml",
        "dpal report artifacts/${name} --metrics results",
    ]
    before = Path("dvc.yaml").read_bytes()
    done = call("init", "other", *asked, "--why-public", "made up")
    assert done.returncode == 2
    assert "dvc.yaml" in done.stderr
    assert Path("dvc.yaml").read_bytes() == before
    assert not Path("other.yaml").exists()
