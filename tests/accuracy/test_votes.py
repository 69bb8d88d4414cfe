"""Private votes on real records with several labels: what students reach, one run of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.accuracy.voting_pools import write_pools
from tests.conftest import ROOT, SHARED
from tests.flows.calling import call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SHARED / "scene.parquet").is_file(), reason="needs scene and yeast"),
    pytest.mark.usefixtures("orchestrated"),
]


@pytest.fixture(scope="module")
def pools(tmp_path_factory):
    place = tmp_path_factory.mktemp("votes")
    write_pools(SHARED, place / "data", ("scene", "yeast"))
    return place


@pytest.mark.parametrize(("name", "votes", "sgd"), [("scene", 0.77, 0.87), ("yeast", 0.56, 0.64)])
def test_a_student_learns_from_certified_votes(pools, monkeypatch, name, votes, sgd):
    """At epsilon 8, whatever the votes are; DP-SGD is better with so few teachers, and is told."""
    monkeypatch.chdir(pools)
    config = ROOT / "flows" / "configs" / "papers" / f"votes-{name}.yaml"
    done = call("run", str(config), "--set", "baselines.run=[dp_sgd]")
    assert done.returncode == 0, done
    folder = Path(done.stdout.splitlines()[-1])
    methods = json.loads((folder / "methods.json").read_text(encoding="utf-8"))
    assert methods["pate"]["averages"]["auc"] >= votes
    assert methods["dp_sgd"]["averages"]["auc"] >= sgd
    assert methods["pate"]["epsilon"] <= 8
    assert "Votes lose to DP-SGD" in (folder / "report.md").read_text(encoding="utf-8")
    assert call("verify", str(folder), "--ledger", str(folder), "--key", "own").returncode == 0
