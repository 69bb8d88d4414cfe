"""What a lineage server is told of runs, by the library itself: into files, and over HTTP."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

import tasks.lineage
from dpal.config.campaign import parse_config
from dpal.errors import LedgerError
from dpal.files.artifacts import CampaignFolder
from dpal.runs.campaign_use_cases import CampaignRuns
from dpal.runs.labeling import deliver_labels
from flows.campaign import run_campaign
from flows.collect_labels import collect_labels
from tasks.boundary import flow
from tasks.lineage import is_listened_to, told_to_lineage
from tasks.lineage_events import PROMISE, PROMISE_SCHEMA
from tasks.wait_for_people import waiting_phases
from tests.conftest import ROOT, small_values
from tests.flows.conftest import heard as heard
from tests.flows.test_labeling import answered, deployed, execute

SCHEMA = json.loads((ROOT / "docs" / "lineage-promise.json").read_text())
SHORT = {"initial": 60, "queries": [40], "batch_size": 20, "epochs_per_phase": 1}
VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_API_KEY", "OPENLINEAGE_CONFIG")


@pytest.fixture(autouse=True)
def _nothing_is_configured(workplace, monkeypatch):
    monkeypatch.setenv("HOME", str(workplace))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def to_a_file(workplace, monkeypatch) -> Path:
    """Events are lines of a file, as openlineage.yml in the folder of work says."""
    settings = {"type": "file", "log_file_path": "events.jsonl", "append": True}
    Path("openlineage.yml").write_text(json.dumps({"transport": settings}))
    return workplace / "events.jsonl"


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def is_by_the_specification(event: dict[str, Any]) -> bool:
    """Whether the library's own classes take an event apart and make the same of it."""
    run, job = event["run"], event["job"]
    made = RunEvent(
        eventTime=event["eventTime"],
        producer=event["producer"],
        run=Run(**run),
        job=Job(**job),
        eventType=RunState(event["eventType"]),
        inputs=[InputDataset(**file) for file in event["inputs"]],
        outputs=[OutputDataset(**file) for file in event["outputs"]],
    )
    facets = [*run["facets"].values(), *job["facets"].values()]
    facets += [facet for file in event["outputs"] for facet in file["facets"].values()]
    assert all(facet["_schemaURL"] and facet["_producer"] for facet in facets)
    return bool(made.schemaURL == event["schemaURL"])


def test_nobody_is_told_unless_somebody_listens(workplace, monkeypatch):
    assert not is_listened_to()
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    assert is_listened_to()
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "True")
    assert not is_listened_to()


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_a_campaign_on_digits_from_start_to_certificate(to_a_file):
    pool = ROOT / "data" / "digits-pool.parquet"
    data = {"pool": str(pool), "validation": str(ROOT / "data" / "digits-validation.parquet")}
    config = parse_config(small_values(data=data, schedule=SHORT, privacy={"selection": "hidden"}))
    run_campaign(config)
    events, folder = read(to_a_file), CampaignFolder(config.runtime.artifacts / "small")
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert all(map(is_by_the_specification, events))
    assert len({event["run"]["runId"] for event in events}) == 1
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in events} == {
        ("dpal", "campaign.small")
    }
    for event in events:
        told = event["run"]["facets"][PROMISE]
        jsonschema.validate(told, SCHEMA)
        assert (told["_schemaURL"], told["epsilon"], told["unit"]) == (PROMISE_SCHEMA, 8, "record")
        assert event["run"]["facets"]["parent"]["job"]["name"] == "campaign"
    first, last = events[0], events[-1]
    assert {Path(file["name"]).name for file in first["inputs"]} == {
        "digits-pool.parquet",
        "digits-validation.parquet",
    }
    assert not any(file["facets"] for event in events for file in event["inputs"])
    made = {
        Path(file["name"]).name: file["facets"]["version"]["datasetVersion"]
        for file in last["outputs"]
    }
    document = json.loads(folder.certificate.read_text())
    assert made["certificate.json"] == document["digest"]
    assert made["ledger.sqlite"] == document["ledger"]["head"]["digest"]
    assert len([file for file in last["outputs"] if file["name"].endswith(".safetensors")]) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_no_record_and_no_moment_is_told(to_a_file, small):
    run_campaign(small(schedule=SHORT))
    text = to_a_file.read_text()
    assert not any(name in text for name in pq.read_table("pool.parquet")["id"].to_pylist())
    times = [event["eventTime"] for event in read(to_a_file)]
    assert times == sorted(times) and len(set(times)) == len(times)
    assert all("T12:00:0" in time for time in times), "seconds after noon number the events"


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_a_run_that_waited_for_people_is_one_run(to_a_file, small):
    schedule = {"initial": 12, "queries": [], "batch_size": 6, "epochs_per_phase": 1}
    number = deployed(small(labeler={"kind": "file"}, schedule=schedule))
    folder = CampaignFolder(Path("artifacts/small"))
    assert execute(number) == "Suspended"
    assert [event["eventType"] for event in read(to_a_file)] == ["START"]
    assert waiting_phases(folder)
    deliver_labels(folder, answered(folder))
    assert collect_labels(Path("artifacts")) == 1
    assert execute(number) == "Completed"
    events = read(to_a_file)
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    read_last = {Path(file["name"]).name for file in events[-1]["inputs"]}
    assert "labels.parquet" in read_last, "by name, and by nothing else"


class _LineageServer(ThreadingHTTPServer):
    """Takes events; a test may have it hang."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Listener)
        self.taken: list[tuple[str, str | None, dict[str, Any]]] = []
        self.is_stuck, self.let_go = False, threading.Event()


class _Listener(BaseHTTPRequestHandler):
    server: _LineageServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, self.headers["Authorization"], json.loads(body)))
        if self.server.is_stuck and self.server.let_go.wait(20):
            return
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server():
    with _LineageServer() as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield listening
        listening.let_go.set()
        listening.shutdown()


def told(config, *, why: Exception | None = None) -> None:
    """Has a flow tell of a planned campaign that ends at once."""

    @flow(name="of-a-test")
    def telling() -> None:
        with told_to_lineage(CampaignRuns().plan(config), config) as tell:
            tell()
            if why is not None:
                raise why

    telling(return_state=True)


@pytest.mark.usefixtures("orchestrated")
def test_a_server_hears_of_a_failure_in_public_words(server, small, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret-of-a-test")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "clinic")
    told(small(), why=LedgerError("row {row} is damaged", row="r-00007"))
    told(small(), why=KeyError("r-00007"))
    paths, keys, events = zip(*server.taken, strict=True)
    assert set(paths) == {"/api/v1/lineage"} and set(keys) == {"Bearer secret-of-a-test"}
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "FAIL"] * 2
    assert {event["job"]["namespace"] for event in events} == {"clinic"}
    assert all(map(is_by_the_specification, events))
    assert events[2]["run"]["facets"]["errorMessage"]["message"] == "row [...] is damaged"
    assert "r-00007" not in json.dumps(events)


@pytest.mark.usefixtures("orchestrated")
@pytest.mark.parametrize("dead", ["stuck", "refuses", "no transport of this name"])
def test_a_dead_server_costs_no_more_than_is_said(server, small, heard, monkeypatch, dead):
    monkeypatch.setattr(tasks.lineage, "PATIENCE", 1.0)
    server.is_stuck = dead == "stuck"
    port = server.server_port if server.is_stuck else 1
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{port}")
    if "name" in dead:
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT", '{"type": "pigeon"}')
    run, config = CampaignRuns().plan(small()), small()

    @flow(name="of-a-test")
    def telling() -> float:
        began = time.monotonic()
        with told_to_lineage(run, config) as tell:
            tell()
        return time.monotonic() - began

    assert telling() < 1.0 + 1.5, "and what it takes to make three events on a busy machine"
    assert "3 of 3 events" in heard()
