"""Waiting for people: a deployment's flow run suspends, and goes on when labels are complete."""

from __future__ import annotations

import contextlib
import csv
import json
import socket
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import Pause
from prefect.flow_engine import run_flow

from dpal.data.labeling_state import read_labels, read_selection
from dpal.errors import ConfigError
from dpal.files.artifacts import CampaignFolder
from dpal.labeling.labeling_figures import read_labeling_figures
from dpal.runs.labelers.label_studio import LabelStudioProject
from dpal.runs.labeling import deliver_labels
from dpal.runs.labeling_job import LabelingJob
from flows.campaign import run_campaign
from flows.collect_labels import collect_labels
from tasks.collect_waiting import Collected, collect_campaign
from tasks.wait_for_people import ResumeOutcome, resume_flow_run, waiting_phases
from tests.conftest import allow
from tests.flows.calling import call

pytestmark = pytest.mark.usefixtures("orchestrated")


@pytest.fixture
def asked(small, workplace):
    """A campaign whose labels come from files, with one query."""
    return small(labeler__kind="file", schedule__queries=[40])


def deployed(config) -> UUID:
    """A flow run of a deployment, which nobody executes yet; the owner allows what it needs."""
    allow(config)
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(
            flow_id=client.create_flow(run_campaign), name="campaign", work_pool_name=None
        )
        run = client.create_flow_run_from_deployment(
            deployment, parameters={"config": config.model_dump(mode="json")}
        )
    return run.id


def run_of(number: UUID):
    with get_client(sync_client=True) as client:
        return client.read_flow_run(number)


def execute(number: UUID) -> str:
    """Does what a worker's process does; returns the state that the run is in afterwards."""
    with contextlib.suppress(Pause):  # as the engine of a worker does
        run_flow(run_campaign, flow_run=run_of(number))
    return str(run_of(number).state.name)


def answered(folder: CampaignFolder) -> Path:
    """The open query's file, filled in."""
    (files, _), *_ = waiting_phases(folder)
    path = files.query / "query.csv"
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    out = folder.root.parent / "answers.csv"
    with out.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "label"])
        writer.writeheader()
        writer.writerows({"id": row["id"], "label": int(row["id"][-1]) % 3} for row in rows)
    return out


@pytest.mark.slow
def test_a_deployed_run_suspends_and_goes_on_from_the_top(asked):
    run = deployed(asked)
    folder = CampaignFolder(Path("artifacts/small"))
    assert execute(run) == "Suspended"
    ((files, waiting),) = waiting_phases(folder)
    assert (files.root.name, waiting.kind, waiting.flow_run) == ("phase-0", "file", str(run))
    assert collect_labels(Path("artifacts")) == 0  # nothing is delivered yet
    assert run_of(run).state.name == "Suspended"

    told = call("label", str(folder.root), str(answered(folder)))
    assert told.returncode == 0, told
    assert "100 labels accepted" in told.stdout
    assert "a worker takes it up" in told.stdout
    assert run_of(run).state.name == "Resuming"
    assert resume_flow_run(folder, waiting) is ResumeOutcome.ON_ITS_WAY  # twice does no harm

    assert execute(run) == "Suspended"  # the second query
    ((files, _),) = waiting_phases(folder)
    assert files.root.name == "phase-1"
    deliver_labels(folder, answered(folder))
    assert collect_labels(Path("artifacts")) == 1
    assert collect_labels(Path("artifacts")) == 0
    assert execute(run) == "Completed"
    assert waiting_phases(folder) == []
    assert len(folder.finished_phases()) == 2


@pytest.mark.slow
def test_a_run_that_is_resumed_too_early_suspends_again(asked):
    run = deployed(asked)
    assert execute(run) == "Suspended"
    with get_client(sync_client=True) as client:
        client.resume_flow_run(run)
    assert execute(run) == "Suspended"
    ((_, waiting),) = waiting_phases(CampaignFolder(Path("artifacts/small")))
    assert waiting.flow_run == str(run)


def test_an_address_that_a_later_run_wrote_down_is_not_asked(asked, monkeypatch):
    """Beside another labeler it was never compared with the owner's list."""
    assert execute(deployed(asked)) == "Suspended"
    folder = CampaignFolder(Path("artifacts/small"))
    ((files, waiting),) = waiting_phases(folder)
    replace(waiting, kind="label_studio").write(files)
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", "token")
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0.5)
        record = folder.read_record()
        url = f"http://127.0.0.1:{elsewhere.getsockname()[1]}"
        record["config"]["labeler"]["label_studio"]["url"] = url
        folder.write_record(record)
        assert collect_campaign.fn(folder.root) is Collected.WAITS
        job = LabelingJob.recorded(folder)
        assert job.config.labeler.label_studio.url == url
        for ask in (LabelStudioProject().delete_project, LabelStudioProject().look):
            with pytest.raises(ConfigError):
                ask(job, files)
        with pytest.raises(TimeoutError):
            elsewhere.accept()


@pytest.mark.slow
def test_a_form_is_shown_filled_in_and_taken_off_the_server(small, workplace):
    config = small(
        labeler={"kind": "form", "trusted_page": True},
        schedule={"initial": 12, "queries": [], "batch_size": 6, "epochs_per_phase": 1},
    )
    run, folder = deployed(config), CampaignFolder(Path("artifacts/small"))
    assert execute(run) == "Suspended"
    kept = inputs_of(run)
    asked = read_selection(folder.phase(0).selection)
    (schema,) = (value for key, value in kept.items() if key.endswith("schema"))
    assert json.loads(schema)["properties"]["record_12"]["enum"] == ["0", "1", "2"]
    assert all(name in "".join(kept.values()) for name in asked)  # rows of numbers go by id

    with get_client(sync_client=True) as client:
        refused = client.resume_flow_run(run, run_input={"record_1": "7"})
    assert refused.status.value == "REJECT"
    values = {f"record_{one}": str(one % 3) for one in range(1, 13)}
    with get_client(sync_client=True) as client:
        client.resume_flow_run(run, run_input=values)
    assert execute(run) == "Completed"
    labels = read_labels(folder.phase(0).labels)
    assert labels == {name: (number + 1) % 3 for number, name in enumerate(asked)}
    assert inputs_of(run) == {}
    figures = read_labeling_figures(folder.phase(0).labeling)
    assert (figures.records, figures.answers, figures.annotators) == (12, 12, 1)
    assert figures.compared == 0


def inputs_of(run: UUID) -> dict[str, str]:
    with get_client(sync_client=True) as client:
        found = client.filter_flow_run_input(
            run, key_prefix="suspended", limit=50, exclude_keys=set()
        )
    return {one.key: one.value for one in found}
