"""A watch whose process is killed with signal 9, between two of its steps."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import get_client

from dpal.data.inbox.state import Stage, WatchFolder
from flows.campaign import run_campaign
from tests.conftest import write_blobs
from tests.flows.watching import watch_values

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("orchestrated")]

# The command as it is, but for one step, in whose place the process is killed.
_KILLED = """
import os, signal, sys
import flows.watch
from flows.cli.main import main

setattr(flows.watch, sys.argv.pop(1), lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
main()
"""
# The command as it is, killed once a worker was asked for and before that is remembered.
_KILLED_ASKING = """
import os, signal
from dpal.data.inbox.state import WatchFolder
from flows.cli.main import main

write = WatchFolder.write


def killing(folder, state):
    if state.last is not None and state.last.flow_run:
        os.kill(os.getpid(), signal.SIGKILL)
    write(folder, state)


WatchFolder.write = killing
main()
"""
_LOOK = ("watch", "watch.yaml", "--once")


@pytest.fixture
def inbox(workplace, mlflow_uri, monkeypatch, dpal):
    """A registered first file, whose campaign is done, and a second one that just came."""
    monkeypatch.setenv("XDG_STATE_HOME", str(workplace / "state"))
    values = watch_values(campaign__runtime__mlflow_uri=mlflow_uri)
    Path("watch.yaml").write_text(yaml.safe_dump(values))
    Path("inbox").mkdir()
    shutil.copy("pool.parquet", "inbox/january.parquet")
    withdraw()
    assert dpal("data", "register", "clinic", "inbox", "--epsilon", "8").returncode == 0
    first = dpal(*_LOOK)
    assert "Campaign clinic-0001 on 1 file is finished" in first.stdout, first
    write_blobs(Path("inbox/march.parquet"), 400, seed=5, prefix="n")
    yield workplace
    withdraw()


def withdraw():
    """Takes the deployment of campaigns off the server: other tests may have left one."""
    with get_client(sync_client=True) as client:
        for one in client.read_deployments():
            if one.name == "campaign":
                client.delete_deployment(one.id)


def killed(prefect_api, script, *words):
    ended = subprocess.run(
        [sys.executable, "-c", script, *words, *_LOOK],
        env={**os.environ, "PREFECT_API_URL": prefect_api},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == -signal.SIGKILL, ended


def remembered():
    return WatchFolder(Path("artifacts/watch/clinic")).read()


def sizes(dpal):
    shown = json.loads(dpal("data", "show", "clinic", "--json").stdout)
    return [one["size"] for one in shown["clinic"]["blocks"]]


@pytest.mark.parametrize(
    ("step", "stage"),
    [
        ("register_files", Stage.FINISHED),
        ("plan_campaign", Stage.FINISHED),
        ("start_campaign", Stage.PLANNED),
        ("run_campaign", Stage.STARTED),
    ],
)
def test_killed_between_two_steps_it_goes_on_and_nothing_is_double(
    inbox, dpal, prefect_api, step, stage
):
    killed(prefect_api, _KILLED, step)
    left = remembered()
    assert [one.registered for one in left.accepted] == [True, step != "register_files"]
    assert (left.last.stage, len(left.runs)) == (stage, 1 if stage is Stage.FINISHED else 2)
    ended = dpal(*_LOOK)
    assert "Campaign clinic-0002 on 2 files is finished" in ended.stdout, ended
    assert sizes(dpal) == [600, 400]
    again = dpal(*_LOOK)
    assert "Campaign clinic-0002 on 2 files is finished" in again.stdout, again
    assert [one.name for one in remembered().runs] == ["clinic-0001", "clinic-0002"]


def test_killed_after_it_asked_for_a_worker_it_asks_for_the_same_flow_run(inbox, dpal, prefect_api):
    with get_client(sync_client=True) as client:
        client.create_deployment(
            flow_id=client.create_flow(run_campaign), name="campaign", work_pool_name=None
        )
    killed(prefect_api, _KILLED_ASKING)
    assert remembered().last.stage is Stage.PLANNED
    asked = flow_runs()
    assert len(asked) == 1
    assert dpal(*_LOOK).returncode == 0
    assert flow_runs() == asked == [remembered().last.flow_run]
    assert sizes(dpal) == [600, 400]


def flow_runs():
    """Flow runs that workers were asked for."""
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs()
    return [str(one.id) for one in runs if one.name == "clinic-0002" and one.deployment_id]
