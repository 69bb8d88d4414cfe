"""Teachers, students and fine-tuning on a work pool, with a real server and real workers."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import write_blobs
from tests.flows import improving, voting
from tests.flows.pooling import Campaign, Site, await_true, kill, site_in, training_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("models")) as made:
        (made.folder / "votes").mkdir()
        voting.write_data(made.folder / "votes")
        write_blobs(made.folder / "public.parquet", 400, seed=3, prefix="p")
        yield made


def voting_run(site: Site, name: str, **sections: Any) -> Campaign:
    values = voting.settings(name, **sections)
    for section in ("data", "public"):
        values[section] = {key: f"votes/{file}" for key, file in values[section].items()}
    return listed(site, name, values)


def listed(site: Site, name: str, values: dict[str, Any]) -> Campaign:
    file = site.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return site.listed(file)


def folder_of(run: Campaign) -> Path:
    return run.site.folder / "artifacts" / run.name


def ordered(run: Campaign) -> list[str]:
    """What was ordered for a run, in order."""
    found = run.site.trainings(run.name)
    return [one["parameters"]["order"]["training"] for one in reversed(found)]


def test_teachers_and_student_are_trained_by_a_worker(site):
    """No digest of a teacher stands on Prefect's pages, and nothing of a record."""
    run, worker = voting_run(site, "pooled", runtime={"training_pool": "gpu"}), site.worker()
    assert run.run().wait(500) == 0, run.said
    kill(worker)
    assert ordered(run) == ["teachers", "student"]
    teachers = sorted((folder_of(run) / "confidential" / "teachers").glob("*.safetensors"))
    assert len(teachers) == voting.TEACHERS
    shown = str(site.ask("artifacts/filter", limit=200)) + str(site.trainings(run.name))
    for path in teachers:
        assert hashlib.sha256(path.read_bytes()).hexdigest() not in shown
    assert "secret-0" not in shown
    # Again it changes nothing, and orders nothing.
    assert run.run().wait(300) == 0, run.said
    assert len(ordered(run)) == 2


def test_a_killed_training_is_ordered_again(site):
    longer = {"count": voting.TEACHERS, "epochs": 4000}
    run = voting_run(site, "killed", teachers=longer, runtime={"training_pool": "gpu"})
    worker, running = site.worker(), run.run()
    training_process("killed").send_signal(signal.SIGKILL)
    await_true(lambda: len(ordered(run)) == 2, 120)
    assert running.wait(500) == 0, run.said
    kill(worker)
    assert ordered(run) == ["teachers", "teachers", "student"]


def test_fine_tuning_is_done_by_a_worker_after_its_start(site):
    """The start is a campaign, whose phases go to the same pool."""
    choice = {"method": "diverse_public", "labels": 60, "candidates": 150, "components": 3}
    values = improving.settings("better", choice=choice, runtime={"training_pool": "gpu"})
    run, worker = listed(site, "better", values), site.worker()
    assert run.run().wait(500) == 0, run.said
    kill(worker)
    assert ordered(run) == ["fine-tuning"]
    alone = listed(site, "alone", {**values, "name": "alone", "runtime": {}})
    assert alone.run().wait(300) == 0, alone.said
    one, other = (folder_of(each) / "phase-0/model.safetensors" for each in (run, alone))
    assert one.read_bytes() == other.read_bytes()  # fine-tuning draws nothing
