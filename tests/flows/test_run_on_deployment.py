"""`dpal run --on`: a run is given to the workers of a deployment of a real Prefect server."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import write_blobs, write_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def deployed(dpal, tmp_path_factory):
    """Deployments of all flows, and one with settings of its own."""
    place = tmp_path_factory.mktemp("deployed")
    write_blobs(place / "pool.parquet", 600, seed=1)
    write_blobs(place / "validation.parquet", 300, seed=2, prefix="v")
    write_config(place / "c.yaml", name="small")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        told = dpal("deploy", "c.yaml")
        assert told.returncode == 0, told.stderr
        yield dpal
        assert dpal("deploy", "--remove").returncode == 0


def given(api: str, address: str) -> dict[str, Any]:
    """The settings that a run on the server has, by the address that was printed."""
    place = f"{api}/flow_runs/{address.strip().rpartition('/')[2]}"
    run = httpx.get(place, timeout=60).json()
    httpx.delete(place, timeout=60)
    assert run["state"]["type"] == "SCHEDULED"
    assert run["name"] == run["parameters"]["config"]["name"]
    return dict(run["parameters"]["config"])


def test_a_deployments_settings_are_run_as_changed(deployed, prefect_api):
    told = deployed("run", "--on", "campaign/small", "--set", "privacy.epsilon=3")
    assert told.returncode == 0, told.stderr
    config = given(prefect_api, told.stdout)
    assert (config["name"], config["privacy"]["epsilon"]) == ("small", 3)
    kept = httpx.get(f"{prefect_api}/deployments/name/campaign/small", timeout=60).json()
    assert kept["parameters"]["config"]["privacy"]["epsilon"] == 8


def test_a_files_settings_are_run_by_a_deployment_that_has_none(deployed, prefect_api, tmp_path):
    file = write_config(tmp_path / "other.yaml", name="other", schedule__initial=120)
    told = deployed("run", str(file), "--on", "campaign")
    assert told.returncode == 0, told.stderr
    config = given(prefect_api, told.stdout)
    assert (config["name"], config["schedule"]["initial"]) == ("other", 120)


def test_what_cannot_run_is_refused_before_a_run_is_made(deployed):
    for arguments, said in (
        (["--on", "campaign/small", "--set", "privacy.epsilon=-1"], "privacy.epsilon"),
        (["--on", "campaign/campaign"], "name"),  # it has no settings of its own
        (["c.yaml", "--on", "pate/pate"], "kind"),
        (["--on", "campaign/nowhere"], "campaign/small"),  # what there is
        (["c.yaml", "--on", "campaign/small", "--redraw", "phase-0/training"], "--on"),
        (["c.yaml", "--on", "campaign", "--set", "runtime.mlflow_uri=http://a:secret@h"], "passw"),
        ([], "--on"),
    ):
        told = deployed("run", *arguments)
        assert told.returncode != 0, arguments
        assert said in told.stderr and "secret" not in told.stderr, told.stderr
        assert told.stdout == ""
