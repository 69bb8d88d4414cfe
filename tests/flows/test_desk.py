"""The desk notices files and labels, and makes no flow run to look: on a real Prefect server."""

from __future__ import annotations

import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse

from dpal.data.inbox.state import Stage
from flows.cli.deploy import make
from flows.ops.deploy import take_down
from flows.ops.deployments import from_file, pools_of
from flows.ops.watch_labels_and_files import VARIABLE, Desk, _is_due, _looked, alone_at_desk
from tests.conftest import allow
from tests.flows.watching import last_run, register, remembered, small_watch, watch_values

NAME = "desk-clinic"


@pytest.fixture
def watched(workplace, orchestrated, monkeypatch):
    """A registered first file, and a deployed watch on its folder."""
    monkeypatch.setenv("PREFECT_API_URL", orchestrated)
    monkeypatch.setenv("XDG_STATE_HOME", str(workplace / "state"))
    monkeypatch.setenv("DPAL_ALLOW", str(workplace / "owner" / "allow.yaml"))
    Path("inbox").mkdir()
    shutil.copy("pool.parquet", "inbox/january.parquet")
    Path("watch.yaml").write_text(yaml.safe_dump(watch_values(name=NAME)))
    own = [from_file(Path("watch.yaml"))]
    make(own, pools_of({}, {}, own), {})
    yield small_watch(name=NAME)
    with get_client(sync_client=True) as client:
        take_down(client)  # other tests share the server


def runs_of(flow: str, since: datetime) -> list[FlowRun]:
    """Flow runs of a flow that were made since then."""
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(flow_filter=FlowFilter(name=FlowFilterName(any_=[flow])))
    return [run for run in found if run.created is not None and run.created >= since]


def looked(desk: Desk) -> None:
    """One look of the desk, to its end."""
    desk._labels_at = 0.0
    desk.step()
    deadline = time.monotonic() + 120
    while any(one.process is not None for one in desk._watches.values()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
        desk._reap()


def again(desk: Desk) -> None:
    """Another look, which is due because the last one was long ago."""
    long_ago = (datetime.now(UTC) - timedelta(days=8)).isoformat()
    desk._remember({NAME: long_ago})
    looked(desk)


@pytest.mark.slow
def test_a_file_starts_a_campaign_and_looking_makes_no_run(watched):
    since, desk = datetime.now(UTC), Desk(Path("artifacts"))
    register(Path("inbox/january.parquet"))
    allow(watched)
    looked(desk)
    last = last_run(remembered(watched))
    assert (last.name, last.stage) == (f"{NAME}-0001", Stage.STARTED)
    [campaign] = [run for run in runs_of("campaign", since) if run.name == last.name]
    assert str(campaign.id) == last.flow_run
    again(desk)  # a desk that is new, and one that looks again, start nothing twice
    again(Desk(Path("artifacts")))
    assert len([run for run in runs_of("campaign", since) if run.name == last.name]) == 1
    assert runs_of("watch", since) == []
    with get_client(sync_client=True) as client:
        told = client.read_variable_by_name(VARIABLE)
        assert told is not None and isinstance(told.value, dict)
        assert told.value["folder"] == str(Path.cwd())
        assert datetime.fromisoformat(told.value["looked"]) >= since.replace(microsecond=0)
        pages = client.request("POST", "/artifacts/latest/filter", json={}).json()
    story = next(page["data"] for page in pages if page["key"] == f"watch-{NAME}")
    assert f"Campaign {NAME}-0001 on 1 file is running" in story


@pytest.mark.slow
def test_what_a_person_has_to_see_is_one_run_of_the_watch(watched, capsys):
    since, desk = datetime.now(UTC), Desk(Path("artifacts"))
    allow(watched)
    looked(desk)
    again(desk)
    [run] = runs_of("watch", since)
    assert run.state is not None and run.state.is_scheduled()  # a worker's, which fails for all
    said = capsys.readouterr().err
    assert said.count("is not registered") == 1
    register(Path("inbox/january.parquet"))
    again(desk)
    assert len(runs_of("watch", since)) == 1
    assert last_run(remembered(watched)).stage is Stage.STARTED


@pytest.mark.slow
def test_settings_from_the_server_are_held_to_the_owners_list(watched, capsys):
    """Whoever has Prefect's password can change a deployment's settings."""
    register(Path("inbox/january.parquet"))
    looked(Desk(Path("artifacts")))
    assert "not allowed" in " ".join(capsys.readouterr().err.split())
    assert not Path("artifacts/watch").exists()


@pytest.mark.slow
def test_a_paused_watch_and_one_of_another_folder_are_left_alone(watched, monkeypatch, tmp_path):
    allow(watched)
    register(Path("inbox/january.parquet"))
    desk = Desk(Path("artifacts"))
    with get_client(sync_client=True) as client:
        number = client.read_deployment_by_name(f"watch/{NAME}").id
        client.pause_deployment(number)
        looked(desk)
        assert NAME not in desk._watches
        client.resume_deployment(number)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with monkeypatch.context() as moved:
        moved.chdir(elsewhere)
        looked(Desk(elsewhere / "artifacts"))
        assert not (elsewhere / "artifacts" / "watch").exists()
    looked(desk)
    assert last_run(remembered(watched)).stage is Stage.STARTED


@pytest.mark.parametrize(
    "told",
    [
        {"parameters": {"config": 5}},
        {"pull_steps": [{"prefect.deployments.steps.set_working_directory": "x"}]},
        {"pull_steps": [{"prefect.deployments.steps.set_working_directory": {"directory": "\0"}}]},
        {"pull_steps": ["x"]},
    ],
)
def test_what_anybody_may_tell_the_server_ends_no_desk(told):
    facts: dict[str, Any] = {
        "parameters": {"config": watch_values(name=NAME)},
        "pull_steps": None,
        "paused": False,
    }
    theirs = DeploymentResponse.model_construct(id=uuid4(), **{**facts, **told})
    ours = DeploymentResponse.model_construct(id=uuid4(), **facts)
    assert _looked(ours) is not None
    found = _looked(theirs)
    assert found is None or "pull_steps" in told  # steps that are not ours name no folder


def test_a_look_is_due_by_the_watch_s_own_clock():
    now = datetime(2026, 5, 4, 6, 0, tzinfo=UTC)  # a Monday
    often, weekly = small_watch(every_minutes=5), small_watch(cron="0 6 * * 1")
    assert _is_due(often, None, now)
    assert not _is_due(often, (now - timedelta(minutes=4)).isoformat(), now)
    assert _is_due(often, (now - timedelta(minutes=6)).isoformat(), now)
    assert not _is_due(weekly, None, now + timedelta(hours=1))
    assert _is_due(weekly, (now - timedelta(hours=1)).isoformat(), now)  # also if nobody was there
    assert not _is_due(weekly, (now + timedelta(hours=1)).isoformat(), now + timedelta(days=1))


def test_a_second_desk_of_a_folder_takes_over_when_the_first_ends(tmp_path, capsys):
    with alone_at_desk(tmp_path):
        later = threading.Thread(target=lambda: alone_at_desk(tmp_path).__enter__(), daemon=True)
        later.start()
        later.join(1)
        assert later.is_alive()
        assert "takes over" in capsys.readouterr().out
    later.join(10)
    assert not later.is_alive()
