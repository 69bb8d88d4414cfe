"""`dpal doctor` beside real servers: what is missing, what is off, what is well."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import VariableUpdate
from prefect.client.schemas.sorting import AutomationSort

from flows.cli.deploy import make
from flows.ops import doctor, doctor_stack
from flows.ops.automations import SILENT
from flows.ops.deploy import take_down
from flows.ops.deployments import pools_of
from flows.ops.prefect_connection import DeployError, prefect_server
from flows.ops.watch_labels_and_files import VARIABLE, _tell_alive
from tests.conftest import write_blobs
from tests.postgres import postgres, postgres_server  # noqa: F401


def found(findings) -> dict[str, tuple[str, str]]:
    return {one.what: (one.state, one.advice) for one in findings}


def test_without_a_prefect_server_nothing_is_asked(small, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert found(doctor_stack.prefect_parts(small())) == {}


@pytest.mark.slow
def test_what_is_not_deployed_paused_or_off_is_named(orchestrated, small, monkeypatch, workplace):
    monkeypatch.setenv("PREFECT_API_URL", orchestrated)
    with get_client(sync_client=True) as client:
        take_down(client)
        bare = found(doctor_stack.prefect_parts(small()))
        assert bare["pool campaigns"] == ("is not there", "run: dpal deploy")
        assert "campaign/campaign" in bare["deployments"][0]
        assert bare["automation"][1] == "run: dpal deploy"
        make([], pools_of({}, {}), {})
        well = found(doctor_stack.prefect_parts(small()))
        assert well["pool gpu"][1] == "start one: dpal worker gpu"
        assert "1 at once" in well["pool gpu"][0] and "4 at once" in well["pool campaigns"][0]
        assert [well[one][1] for one in ("deployments", "heartbeat", "automation")] == [""] * 3
        audit = client.read_deployment_by_name("audit/audit")
        client._client.patch(f"/deployments/{audit.id}", json={"job_variables": {}, "version": "0"})
        (silent, *_) = client.read_automations(sort=AutomationSort.NAME_ASC, limit=9)
        assert silent.name == SILENT
        client.pause_automation(silent.id)
        client._client.patch("/work_pools/gpu", json={"is_paused": True})
        ill = found(doctor_stack.prefect_parts(small()))
        assert "not of version" in ill["deployments"][0]
        assert ill["heartbeat"] == ("off: audit/audit", "run: dpal deploy")
        assert ill["automation"][1] == "switch it on under Automations"
        assert ill["pool gpu"][0] == "is paused"
        take_down(client)


def test_a_desk_that_nobody_sits_at_is_named(orchestrated, small, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", orchestrated)

    def desk():
        return found(doctor_stack.prefect_parts(small()))["desk"]

    with get_client(sync_client=True) as client:
        if client.read_variable_by_name(VARIABLE) is not None:
            client.delete_variable_by_name(VARIABLE)
        assert "dpal desk" in desk()[1]
        _tell_alive()
        assert desk()[1] == ""
        _tell_alive()  # and once more, as it does every few minutes
        then = datetime.now(UTC) - timedelta(hours=2)
        told = {"looked": then.isoformat(), "machine": "gpu-1", "folder": "/srv"}
        client.update_variable(VariableUpdate(name=VARIABLE, value=told))
        state, advice = desk()
        assert "120 min" in state and "/srv on gpu-1" in state and "dpal desk" in advice


def test_a_server_that_is_gone_is_said_once(small, monkeypatch):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    dead = "http://127.0.0.1:9/api"
    monkeypatch.setenv("PREFECT_API_URL", dead)
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "0")
    with temporary_settings(updates={PREFECT_API_URL: dead}):
        gone = found(doctor_stack.prefect_parts(small()))
    assert list(gone) == ["prefect"]
    assert "does not answer" in gone["prefect"][0]


def test_a_server_that_is_slow_is_not_called_dead(small, monkeypatch):
    from prefect.settings import (
        PREFECT_API_REQUEST_TIMEOUT,
        PREFECT_API_URL,
        temporary_settings,
    )

    monkeypatch.setattr(doctor, "_PATIENCE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are taken, and wait
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        monkeypatch.setenv("PREFECT_API_URL", url)
        [slow] = [one for one in doctor.examine(small()) if one.what == "prefect"]
        wait = {PREFECT_API_URL: url, PREFECT_API_REQUEST_TIMEOUT: 0.5}
        monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "0")
        with (
            temporary_settings(updates=wait),
            pytest.raises(DeployError) as refused,
            prefect_server() as client,
        ):
            client.read_work_pools()
    assert "dpal serve" not in str(refused.value)
    assert "0.5 s" in slow.state
    assert "dpal serve" not in slow.advice
    gone = next(one for one in doctor.examine(small()) if one.what == "prefect")
    assert "ConnectError" in gone.state
    assert "dpal serve" in gone.advice


def test_a_tracking_server_that_is_slow_is_not_called_dead(small, monkeypatch):
    monkeypatch.setattr(doctor_stack, "_MLFLOW_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = small(runtime__mlflow_uri=f"http://127.0.0.1:{silent.getsockname()[1]}")
        slow = found(doctor_stack.mlflow_login(config))["mlflow"]
    assert "0.5 s" in slow[0] and "start it" not in slow[1]
    gone = found(doctor_stack.mlflow_login(config))["mlflow"]
    assert "ConnectError" in gone[0] and "start it" in gone[1]


def test_the_ledger_is_looked_at_and_not_made(small, workplace):
    config = small()
    assert found(doctor_stack.ledger(config))["ledger"][1] == ""
    assert not (workplace / "artifacts").exists()
    lost = small(runtime__ledger="postgresql://nobody@127.0.0.1:9/nothing")
    said = found(doctor_stack.ledger(lost))
    assert "~/.pgpass" in said["postgres"][1]
    assert said["ledger"][1]


def test_a_postgres_ledger_is_whole_and_of_a_version(small, workplace, postgres):  # noqa: F811
    from dpal.runs.open_ledger import open_ledger

    config = small(runtime__ledger=postgres)
    open_ledger(config.runtime).close()
    said = found(doctor_stack.ledger(config))
    assert said["postgres"][0].startswith("version ")
    assert (said["postgres"][1], said["ledger"][1]) == ("", "")


def test_places_that_cannot_be_used_are_named(small, workplace):
    fine = small(runtime__dvc_remote=str(workplace / "remote"))
    assert found(doctor_stack.places(fine))["dvc remote"][1] == ""
    assert not (workplace / "remote").exists()
    unknown = small(runtime__dvc_remote="nowhere://bucket/x")
    state, advice = found(doctor_stack.places(unknown))["dvc remote"]
    assert "not open" in state
    assert "AWS_ACCESS_KEY_ID" in advice
    assert "GiB free" in found(doctor_stack.places(fine))["disk"][0]


def test_label_studio_is_asked_only_where_it_labels(small, monkeypatch):
    assert found(doctor_stack.labeler(small())) == {}
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", "0" * 40)
    asking = small(labeler__kind="label_studio", labeler__label_studio__url="http://127.0.0.1:9")
    state, advice = found(doctor_stack.labeler(asking))["label studio"]
    assert "127.0.0.1:9" in state
    assert "dpal serve --label-studio" in advice


@pytest.mark.parametrize(("apart", "advised"), [(2, False), (600, True)])
def test_clocks_that_differ_are_named(apart, advised):
    then = format_datetime(datetime.now(UTC) - timedelta(seconds=apart), usegmt=True)
    answer = httpx.Response(200, headers={"date": then}, request=httpx.Request("GET", "http://x"))
    (one,) = doctor_stack._clock(answer)
    assert bool(one.advice) is advised


def test_a_full_disk_is_named(small, workplace, monkeypatch):
    write_blobs(workplace / "pool.parquet", 5, seed=1)
    monkeypatch.setattr(doctor_stack, "_LITTLE_DISK", 1 << 60)
    assert "make room" in found(doctor_stack.places(small()))["disk"][1]
