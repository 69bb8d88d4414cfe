"""Prefect Cloud, as far as a server of one's own behind its door can show it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import pytest

from dpal.files.artifacts import CampaignFolder
from tests.conftest import command, write_config
from tests.flows.cloud import ACCOUNT, WORKSPACE, cloud_door
from tests.flows.pooling import Site, await_true

pytestmark = pytest.mark.slow

KEY = "pnu_0123456789abcdefOfATest"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with settings, and a server behind a door; nobody here knows another way to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Site(tmp_path)
    try:
        made.server()
        with cloud_door(made.port, KEY) as door:
            made.environment |= door.environment
            yield made, door
            made.close()
    finally:
        made.close()


def called(site: Site, *words: str, code: int = 0) -> str:
    """What a command says, which has nothing to find fault with unless another code is given."""
    done = subprocess.run(
        [command(), *words], env=site.environment, capture_output=True, text=True, cwd=site.folder
    )
    faults = [line for line in done.stdout.splitlines() if line.startswith("!!")]
    assert done.returncode == code, faults or done
    assert KEY not in done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_campaign_is_deployed_started_and_done_and_the_key_is_nowhere(site):
    made, door = site
    write_config(made.folder / "c.yaml", schedule__queries=[40], runtime__training_pool="gpu")
    for words in (("deploy", "c.yaml"), ("deploy", "c.yaml"), ("allow", "c.yaml")):
        called(made, *words)
    made.start("desk.log", command(), "desk")
    for pool in ("campaigns", "gpu"):
        made.start(f"{pool}.log", command(), "worker", pool)
    wanted = {"name": {"any_": ["small"]}}
    (deployment,) = made.ask("deployments/filter", deployments=wanted)
    made.ask(f"deployments/{deployment['id']}/create_flow_run")
    folder = CampaignFolder(made.folder / "artifacts" / "small")
    await_true(lambda: len(folder.finished_phases()) == 2 and folder.certificate.is_file(), 400)
    await_true(lambda: made.leader("small")["state"]["type"] == "COMPLETED", 120)
    pages = f"http://127.0.0.1:{door.port}/account/{ACCOUNT}/workspace/{WORKSPACE}"
    shown = made.ask("artifacts/filter", artifacts={"key": {"any_": ["campaign-small"]}})
    assert "finished" in str(shown[0]["data"])
    assert f"{pages}/runs" in called(made, "run", "c.yaml", "--set", "name=here")
    found = called(made, "doctor", "--config", "c.yaml")
    assert "deployments" in found and "workers online: 1" in found
    assert "small" in called(made, "status")
    assert "/events/in" in door.passed, "events travel by the same door"
    assert door.refused == [], "nothing was asked without the key, or of another place"
    assert holding(KEY, made.folder) == []


def test_another_key_is_refused_in_a_sentence_that_names_the_setting(site):
    made, _ = site
    made.environment["PREFECT_API_KEY"] = "pnu_ofSomebodyElse"
    assert "PREFECT_API_KEY" in called(made, "deploy", code=2)


def holding(text: str, folder: Path) -> list[str]:
    """Files, of the server too, in which a text stands."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if text.encode() in path.read_bytes()]


def test_the_door_wants_the_key_and_the_workspace(site):
    _, door = site
    api = door.environment["PREFECT_API_URL"]
    bearer = {"Authorization": f"Bearer {KEY}"}
    assert httpx.get(f"{api}/health").status_code == 401
    assert httpx.get(f"{api}/health", headers=bearer).json() is True
    assert httpx.get(f"http://127.0.0.1:{door.port}/api/health", headers=bearer).status_code == 404
    assert len(door.refused) == 2
