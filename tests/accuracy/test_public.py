"""What public records are worth on MNIST: the targets of the project, one run of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpal.files.artifacts import CampaignFolder
from tests.accuracy.public_pools import write_pools
from tests.conftest import ROOT, SHARED
from tests.flows.calling import call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SHARED / "mnist-train.parquet").is_file(), reason="needs MNIST"),
    pytest.mark.usefixtures("orchestrated"),
]


@pytest.fixture(scope="module")
def pools(tmp_path_factory):
    place = tmp_path_factory.mktemp("mnist")
    write_pools(SHARED, place / "data")
    return place


def run(config: str, *changes: str) -> dict[str, float]:
    arguments = [part for one in changes for part in ("--set", one)]
    result = call("run", str(ROOT / "flows" / "configs" / f"{config}.yaml"), *arguments)
    assert result.returncode == 0, result
    return CampaignFolder(Path(result.stdout.splitlines()[-1])).finished_phases()[0]


def test_diverse_public_lifts_a_private_model(pools, monkeypatch):
    monkeypatch.chdir(pools)
    reached = run("mnist-public")
    assert reached["campaign_epsilon"] <= 3.2
    assert reached["start_accuracy"] >= 0.973
    assert reached["validation_accuracy"] >= 0.988


def test_private_votes_leave_irrelevant_records_out(pools, monkeypatch):
    monkeypatch.chdir(pools)
    near = run("mnist-polluted")
    begun = json.dumps("mnist-polluted-start")
    entropy = run(
        "mnist-polluted",
        "name=by-entropy",
        f"start.campaign={begun}",
        "choice.method=uncertain_entropy",
    )
    assert near["campaign_epsilon"] <= 3.2
    assert near["irrelevant_chosen"] <= entropy["irrelevant_chosen"] / 3
    assert near["validation_accuracy"] > entropy["validation_accuracy"]
