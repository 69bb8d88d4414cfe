"""Trainings of several processes of which one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from dpal.errors import ProcessLost
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.randomness import secure
from dpal.runs.verify_ledger import verify_ledger
from dpal.training.distributed.worker_pool import WorkerPool
from dpal.training.train_phase import train_dp_sgd
from tests.conftest import ROOT, command, having, write_config
from tests.faults.test_kill import wait_for
from tests.processes import gone
from tests.training.crews import LOAD, RECORDS, STILL, phase


def train_until(crew: WorkerPool, model: nn.Module, *, step: int, disturb) -> list[int]:
    """Trains with `crew` and disturbs it after a step; gives the steps that were made."""
    seen: list[int] = []

    def on_step(done: int) -> None:
        seen.append(done)
        if done == step:
            disturb()

    train_dp_sgd(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        LOAD(share=crew.share),
        phase(50, noise=1.0),
        STILL,
        physical_batch=8,
        rng=secure(),
        crew=crew,
        on_step=on_step,
    )
    return seen


def test_a_helper_that_is_killed_ends_the_step_in_a_sentence(tmp_path):
    """At once: nobody waits for a timeout. Nothing is left of the crew."""
    model = nn.Linear(RECORDS, 2, bias=False)
    with WorkerPool(LOAD, processes=2, scratch=tmp_path) as crew:
        (helper,) = crew._helpers
        released, killed = [], []

        def kill() -> None:
            assert model.weight.grad is not None
            released.append(model.weight.grad.clone())
            killed.append(time.monotonic())
            os.kill(helper.process.pid, signal.SIGKILL)

        with pytest.raises(ProcessLost, match="by signal 9", check=having(rank=1, processes=2)):
            train_until(crew, model, step=3, disturb=kill)
        assert time.monotonic() - killed[0] < 10
        assert model.weight.grad is not None
        assert torch.equal(model.weight.grad, released[0])
        assert gone(helper.process.pid, within=0.1)
        assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timing
def test_a_helper_that_hangs_is_given_up(tmp_path):
    model = nn.Linear(RECORDS, 2, bias=False)
    with WorkerPool(LOAD, processes=3, scratch=tmp_path, patience=15) as crew:
        helpers = [helper.process.pid for helper in crew._helpers]
        with pytest.raises(
            ProcessLost, match=r"process . of the 3 .* no(thing for 15 s| longer answers)"
        ):
            train_until(crew, model, step=2, disturb=lambda: os.kill(helpers[1], signal.SIGSTOP))
    assert all(gone(pid, within=0.1) for pid in helpers)


_ENDLESS = """
import sys
import time
from pathlib import Path
import torch
from torch import nn
from dpal.training.distributed.worker_pool import WorkerPool
from dpal.training.train_phase import train_dp_sgd
from dpal.randomness import secure
from tests.training.crews import LOAD, RECORDS, STILL, phase

busy = sys.argv[2] == "busy"
with WorkerPool(LOAD, processes=3, scratch=Path(sys.argv[1])) as crew:
    model = nn.Linear(RECORDS, 2)
    def on_step(done):
        if done == 1:
            print(*[one.process.pid for one in crew._helpers], flush=True)
        if not busy:
            time.sleep(100)
    train_dp_sgd(model, torch.optim.SGD(model.parameters(), lr=0.0), LOAD(share=crew.share),
                phase(10**6, noise=1.0), STILL, physical_batch=8, rng=secure(), crew=crew,
                on_step=on_step)
"""


@pytest.mark.slow
@pytest.mark.parametrize("doing", ["busy", "waiting"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.timing
def test_helpers_do_not_outlive_the_main_process(tmp_path, sent, doing):
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, tmp_path, doing],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as main:
        assert main.stdout is not None
        helpers = [int(pid) for pid in main.stdout.readline().split()]
        assert len(helpers) == 2
        assert all(psutil.pid_exists(pid) for pid in helpers)
        main.send_signal(sent)
        try:
            main.wait(20)
        finally:
            main.kill()  # else a failure waits for it for ever
    assert all(gone(pid, within=5) for pid in helpers)


SCHEDULE = {"initial": 200, "queries": [], "batch_size": 50, "epochs_per_phase": 300}


@pytest.mark.slow
@pytest.mark.timing
def test_a_campaign_of_two_processes_goes_on_after_kill_9(dpal, prefect_api, workplace, mlflow_uri):
    write_config(
        workplace / "c.yaml",
        schedule=SCHEDULE,
        runtime__mlflow_uri=mlflow_uri,
        runtime__processes=2,
        runtime__checkpoint_steps=50,
    )
    first = subprocess.Popen(
        [command(), "run", "c.yaml"],
        env={**os.environ, "PREFECT_API_URL": prefect_api},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(Path("artifacts/ledger.sqlite"), "checkpoint", "phase-0/training@100", first)
    helpers = [
        one.pid
        for one in psutil.Process(first.pid).children(recursive=True)
        if "dpal.training.distributed.worker" in " ".join(one.cmdline())
    ]
    assert len(helpers) == 1
    first.kill()
    first.wait()
    assert gone(helpers[0], within=5)
    again = dpal("run", "c.yaml")
    assert again.returncode == 0, again.stderr
    assert "goes on after" in again.stderr + again.stdout
    folder = CampaignFolder(Path("artifacts/small"))
    verify_ledger(folder)
    entries = LedgerStore(folder.ledger, create=False).entries()
    kinds = [entry.kind for entry in entries]
    assert kinds.count(EntryKind.RESERVE) == kinds.count(EntryKind.COMMIT) == 1
    persisted = [entry.body["steps"] for entry in entries if entry.kind is EntryKind.CHECKPOINT]
    assert persisted == sorted(set(persisted))
    assert not list(folder.scratch.glob("*"))
