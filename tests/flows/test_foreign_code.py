"""A worker runs no code that its server or its folder offers: real server, real worker."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.flows.pooling import Site, await_true, kill, site_in

pytestmark = pytest.mark.slow

_OVER = ("CANCELLED", "FAILED", "CRASHED", "COMPLETED")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    for name in ("flows", "dpal", "torch"):  # as somebody who delivers files there could
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"open({str(folder / 'imported')!r}, 'w')\n")
    with site_in(folder) as made:
        yield made


def deployed(site: Site, step: Path) -> str:
    """A deployment of one of our flows whose steps leave a trace."""
    flow = site.ask("flows/", name="collect-labels")
    shell = {
        "prefect.deployments.steps.run_shell_script": {"script": f"touch {shlex.quote(str(step))}"}
    }
    made = site.ask(
        "deployments/",
        name=step.name,
        flow_id=flow["id"],
        work_pool_name="gpu",
        entrypoint="flows.collect_labels.collect_labels",
        pull_steps=[shell],
    )
    return str(made["id"])


@pytest.mark.parametrize("standby", ["0", "1"])
def test_no_step_of_a_deployment_is_run_when_a_run_is_cancelled(site: Site, standby: str) -> None:
    step = site.folder / f"step-{standby}"
    deployment = deployed(site, step)
    worker = site.worker(options=("--standby", standby))
    run = site.ask(f"deployments/{deployment}/create_flow_run", parameters={"artifacts": "x"})

    url = f"{site.api}/flow_runs/{run['id']}"
    await_true(lambda: httpx.get(url, timeout=60).json()["infrastructure_pid"], 240)
    site.cancel(run)
    await_true(lambda: state_of(site, run)["type"] in _OVER, 240)
    kill(worker)
    assert not step.exists()


def test_modules_of_the_folder_are_not_imported(site: Site) -> None:
    worker = site.worker(options=("--standby", "0"))
    deployment = deployed(site, site.folder / "not-run")
    run = site.ask(f"deployments/{deployment}/create_flow_run", parameters={"artifacts": "x"})
    await_true(lambda: state_of(site, run)["type"] in _OVER, 240)
    kill(worker)
    assert "runtime.artifacts" in state_of(site, run)["message"], "the owner's list was asked"
    assert not (site.folder / "imported").exists()


def state_of(site: Site, run: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.get(f"{site.api}/flow_runs/{run['id']}", timeout=60)
    return dict(answer.json()["state"])
