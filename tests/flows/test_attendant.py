from __future__ import annotations

import os
import signal
import time

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelling

from dpal.errors import TrainingStopped
from tasks.attendant import Attendant, attending


def wait_for_stop(attendant: Attendant) -> None:
    deadline = time.monotonic() + 60
    while not attendant.must_stop():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_that_is_told_to_end_is_left_only_when_it_asks():
    before = signal.getsignal(signal.SIGTERM)
    with attending("phase-0") as attendant:
        attendant.leave("phase-0")  # nothing was asked for
        os.kill(os.getpid(), signal.SIGTERM)
        wait_for_stop(attendant)
        with attending("phase-0") as same:
            assert same is attendant
        with pytest.raises(TerminationSignal):
            attendant.leave("phase-0, after 3 of 6 steps,")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_run_that_is_cancelled_on_the_page_stops_at_a_step(orchestrated):
    @flow
    def training() -> str:
        context = FlowRunContext.get()
        with attending("phase-0") as attendant:
            attendant.show(50.0)
            with get_client(sync_client=True) as client:
                client.set_flow_run_state(context.flow_run.id, Cancelling())
            wait_for_stop(attendant)
            with pytest.raises(TrainingStopped) as stopped:
                attendant.leave("phase-0, after 3 of 6 steps,")
        return str(stopped.value)

    assert training() == (
        "phase-0, after 3 of 6 steps, was cancelled; what it had made is persisted and stays paid, "
        "run the same command again to go on"
    )
