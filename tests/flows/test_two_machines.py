"""Two machines that share a store and a Postgres ledger, and no folder."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from dpal.ledger.entries import EntryKind
from tests.conftest import command
from tests.flows.pooling import await_true, site_in
from tests.postgres import postgres, postgres_server  # noqa: F401  fixtures

pytestmark = pytest.mark.slow

# The other machine: what it has under the path of the artifacts folder is a folder of its own.
ITS_OWN = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def test_a_worker_trains_on_another_machine(tmp_path, postgres):  # noqa: F811
    alone = _own_mounts()
    with site_in(tmp_path) as site:
        artifacts, there = tmp_path / "artifacts", tmp_path / "there"
        for folder in (artifacts, there, tmp_path / "store"):
            folder.mkdir()
        campaign = site.campaign(
            "apart",
            schedule__queries=[40],
            runtime__training_pool="gpu",
            runtime__checkpoint_steps=4,
            runtime__ledger=postgres,
            runtime__store=f"file://{tmp_path / 'store'}",
            runtime__store_holds="everything",
        )
        campaign.ledger = postgres
        running = campaign.run()
        await_true(lambda: "pool gpu is" in campaign.said, 240)
        site.environment["XDG_STATE_HOME"] = str(tmp_path / "state")  # anchors of its own
        elsewhere = (*alone, "sh", "-c", ITS_OWN, "sh", str(there), str(artifacts))
        adopted = site.start(
            "adopt.log", *elsewhere, command(), "ledger", "adopt", "artifacts",
            "--ledger", postgres, "--reason", "a second machine",
        )  # fmt: skip
        assert adopted.wait(120) == 0, site.log("adopt.log")
        site.worker(*elsewhere)
        assert running.wait(500) == 0, campaign.said + site.log("worker.log")
        kinds = [one.kind for one in campaign.entries()]
        assert EntryKind.CHECKPOINT in kinds and EntryKind.FORFEIT not in kinds
        for phase in ("phase-0", "phase-1"):
            # Trained there, brought here by digest; a checkpoint has no business here.
            models = [one / "apart" / phase / "model.safetensors" for one in (artifacts, there)]
            assert models[0].read_bytes() == models[1].read_bytes()
            assert models[0].stat().st_ino != models[1].stat().st_ino
        orders = [run["parameters"]["order"] for run in site.trainings("apart")]
        assert all(
            one["url"].startswith(f"file://{tmp_path / 'store'}")
            for order in orders
            for one in order["inputs"]
        )


def _own_mounts() -> list[str]:
    """A command before another one, which then sees mounts of its own; root needs no more."""
    unshare = shutil.which("unshare")
    own = [str(unshare), "--mount", *([] if os.geteuid() == 0 else ["--map-root-user", "--user"])]
    if unshare is None or subprocess.run([*own, "true"], check=False).returncode != 0:
        pytest.skip("no mounts of one's own: unshare(1) is missing or not allowed")
    return own
