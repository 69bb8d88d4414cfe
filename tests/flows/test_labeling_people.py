"""A campaign on a real worker, whose labels people give in a real Label Studio."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate

from dpal.config.campaign import parse_config
from dpal.data.labeling_state import RETIRED, cohort_column, read_selection
from dpal.files.artifacts import CampaignFolder
from dpal.labeling.labeling_figures import read_labeling_figures
from flows.campaign import run_campaign
from flows.collect_labels import collect_labels
from flows.ops import run_flow
from tests.conftest import allow, command, small_values, write_blobs
from tests.flows.calling import call
from tests.flows.leaks import files_below, naming
from tests.labeling.annotators import LabelStudioServer, label_studio  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("orchestrated")]
POOL = "people"
IDS = "patient-zq"
SECONDS = 7341.25  # of a label, which nothing else takes


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def place(
    workplace: Path,
    orchestrated: str,
    label_studio: LabelStudioServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """A folder in which a worker works."""
    write_blobs(workplace / "pool.parquet", 600, seed=1, prefix=IDS)
    monkeypatch.setenv("PREFECT_API_URL", orchestrated)
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", label_studio.token)
    monkeypatch.setenv("DPAL_COLLECT_SECRET", "a word that only both know")
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process"), overwrite=True)
    with started(command(), "worker", POOL):
        yield workplace


class started:  # noqa: N801  reads as what it does
    """A process of our own for the length of a block."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __enter__(self) -> subprocess.Popen[bytes]:
        with Path("processes.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.words, stdout=log, stderr=log, start_new_session=True
            )
        return self.process

    def __exit__(self, *_: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def ordered(config) -> UUID:
    """A flow run that the worker takes up."""
    allow(config)
    step = {"prefect.deployments.steps.set_working_directory": {"directory": str(Path.cwd())}}
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(
            flow_id=client.create_flow(run_campaign),
            name="campaign",
            work_pool_name=POOL,
            entrypoint="flows.campaign.run_campaign",
            pull_steps=[step],
        )
        run = client.create_flow_run_from_deployment(
            deployment, parameters={"config": config.model_dump(mode="json")}
        )
    return run.id


def state_of(run: UUID) -> str:
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(run).state
    assert state is not None
    assert state.name not in ("Failed", "Crashed"), state.message
    return str(state.name)


def until(condition: Callable[[], bool], seconds: float = 480) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(1)


def project_of(folder: CampaignFolder, phase: int) -> int:
    path = folder.phase(phase).query / "projects.json"
    return int(json.loads(path.read_text())["projects"]["label"])


@pytest.mark.timing
def test_people_label_and_no_worker_waits(place, label_studio, free_port, prefect_home):  # noqa: F811
    hook = f"http://127.0.0.1:{free_port}"
    people = {"kind": "label_studio", "label_studio": {"url": label_studio.url, "webhook": hook}}
    run = ordered(parse_config(small_values(labeler=people, schedule__queries=[40])))
    folder, person = CampaignFolder(Path("artifacts/small")), label_studio.annotator()
    until(lambda: state_of(run) == "Suspended")
    until(lambda: not engines())  # the worker is free

    assert collect_labels() == 0
    tasks = person.tasks(project_of(folder, 0))
    assert len(tasks) == 100
    for task in tasks[2:]:
        person.answer(task["id"], str(task["id"] % 3), seconds=SECONDS)
    looked = call("label", "small")
    assert looked.returncode == 0, looked
    assert "7,341.2" in looked.stdout and "2 waiting" in looked.stdout
    for task in tasks[:2]:
        person.skip(task["id"])
    assert collect_labels() == 1
    assert collect_labels() == 0
    until(lambda: (folder.phase(1).query / "projects.json").exists())
    until(lambda: state_of(run) == "Suspended")
    assert (cohort_column(folder.phase(0).pool) == RETIRED).sum() == 2

    # The second query is noticed by a call from Label Studio: nobody looks at it meanwhile.
    until(lambda: not engines())
    with started(command(), "collect", "--listen", str(free_port)):
        until(lambda: answers(free_port))
        person.answer_all(project_of(folder, 1), lambda task: str(task["id"] % 3))
        begun = time.monotonic()
        until(lambda: state_of(run) != "Suspended", 55)
        assert time.monotonic() - begun < 55
    until(lambda: state_of(run) == "Completed")
    assert len(folder.finished_phases()) == 2

    selected = [
        *read_selection(folder.phase(0).selection),
        *read_selection(folder.phase(1).selection),
    ]
    assert len(selected) == 140
    assert naming([IDS, str(SECONDS)], [prefect_home / "prefect.db"]) == set()
    kept = read_labeling_figures(folder.phase(0).labeling)
    assert (kept.records, kept.unlabeled, kept.timed) == (100, {"skipped": 2}, 98)
    assert kept.median_seconds == kept.slow_seconds == SECONDS
    written = naming([str(SECONDS)], files_below(Path.cwd()))
    assert written == {Path.cwd() / folder.phase(0).labeling}
    cleaned = subprocess.run(
        [command(), "label", "small", "--clean"], capture_output=True, text=True
    )
    assert cleaned.returncode == 0, cleaned
    assert "2 labeling projects" in cleaned.stderr
    for phase in (0, 1):
        gone = person.client.get(f"/api/projects/{project_of(folder, phase)}/")
        assert gone.status_code == 404


def engines() -> list[int]:
    """Flow runs that execute in this folder."""
    found = []
    for one in psutil.process_iter(["cmdline", "pid"]):
        words = " ".join(one.info["cmdline"] or [])
        with_us = run_flow.__name__ in words
        try:
            if with_us and Path(one.cwd()) == Path.cwd():
                found.append(one.info["pid"])
        except psutil.Error:
            continue
    return found


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_that_is_down_at_the_start_is_waited_for(place, label_studio):  # noqa: F811
    """Nothing is lost: the project is made by whoever looks next."""
    people = {"kind": "label_studio", "label_studio": {"url": label_studio.url}}
    label_studio.stop()
    run = ordered(parse_config(small_values(labeler=people, schedule__queries=[])))
    folder = CampaignFolder(Path("artifacts/small"))
    until(lambda: state_of(run) == "Suspended")
    assert collect_labels() == 0
    label_studio.start()
    assert collect_labels() == 0
    label_studio.annotator().answer_all(project_of(folder, 0), lambda task: "1")
    until(lambda: not engines())
    assert collect_labels() == 1
    until(lambda: state_of(run) == "Completed")
