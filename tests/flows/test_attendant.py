from __future__ import annotations

import os
import signal
import time
from typing import Any
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import TerminationSignal
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Cancelling

from dpal.errors import TrainingStopped
from tasks.training_monitor import (
    HEARTBEAT_SECONDS,
    FlowRunMonitor,
    monitoring_training,
    watching_for_cancellation,
    without_heart,
)


def wait_for_stop(attendant: FlowRunMonitor) -> None:
    deadline = time.monotonic() + 60
    while not attendant.must_stop():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def own_id() -> UUID:
    """Of the flow run that this process is in."""
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    return context.flow_run.id


def heartbeats(run: UUID) -> list[dict[str, Any]]:
    """What the server knows of a run's heartbeats, as soon as it has written one down."""
    wanted = {
        "event": {"name": ["prefect.flow-run.heartbeat"]},
        "resource": {"id": [f"prefect.flow-run.{run}"]},
    }
    deadline = time.monotonic() + 60
    found: list[dict[str, Any]] = []
    with get_client(sync_client=True) as client:
        while not found and time.monotonic() < deadline:
            time.sleep(0.5)
            answer = client.request("POST", "/events/filter", json={"filter": wanted})
            found = answer.json()["events"]
    return found


def test_a_process_that_is_told_to_end_is_left_only_when_it_asks():
    before = signal.getsignal(signal.SIGTERM)
    with monitoring_training("phase-0") as attendant:
        attendant.leave("phase-0")  # nothing was asked for
        os.kill(os.getpid(), signal.SIGTERM)
        wait_for_stop(attendant)
        with monitoring_training("phase-0") as same:
            assert same is attendant
        with pytest.raises(TerminationSignal):
            attendant.leave("phase-0, after 3 of 6 steps,")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_run_that_is_cancelled_on_the_page_stops_at_a_step(orchestrated):
    @flow
    def training() -> str:
        with monitoring_training("phase-0") as attendant:
            attendant.show(50.0)
            with get_client(sync_client=True) as client:
                client.set_flow_run_state(own_id(), Cancelling())
            wait_for_stop(attendant)
            with pytest.raises(TrainingStopped) as stopped:
                attendant.leave("phase-0, after 3 of 6 steps,")
        return str(stopped.value)

    assert training() == (
        "phase-0, after 3 of 6 steps, was cancelled; what is persisted stays paid and is not lost, "
        "run the same command again to go on"
    )


@pytest.mark.slow
def test_a_training_in_its_campaigns_process_is_known_to_live(orchestrated):
    @flow(name="train-phase")
    def training() -> UUID:
        with monitoring_training("phase-0"):
            time.sleep(3)
        return own_id()

    @flow
    def campaign() -> UUID:
        with watching_for_cancellation(), without_heart():
            return training()

    with temporary_settings(
        {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: HEARTBEAT_SECONDS}
    ):  # as Prefect's own
        run = campaign()
    flows = [
        related["prefect.resource.name"]
        for one in heartbeats(run)
        for related in one["related"]
        if related["prefect.resource.role"] == "flow"
    ]
    assert flows == ["train-phase"]  # the automation that crashes silent runs asks for it
