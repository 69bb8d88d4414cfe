"""Clients of a Prefect server wait while its database is taken, and not for ever."""

from __future__ import annotations

import socket
import threading

import httpx
import pytest
import uvicorn
from prefect.client.base import PrefectHttpxSyncClient
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from flows.ops.busy_database_middleware import PATIENCE_SECONDS, BusyDatabase

TAKEN = 4  # times that the database is taken; Prefect's client asks three times by itself


def taken_at_first() -> Starlette:
    asked = iter(range(1_000))

    def answer(_):
        return PlainTextResponse("", status_code=503 if next(asked) < TAKEN else 200)

    return Starlette(routes=[Route("/", answer)])


@pytest.fixture
def served():
    """Serves an application on this machine; gives its address."""
    servers = []

    def serve(app) -> str:
        bound = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{bound.getsockname()[1]}/"

    yield serve
    for server, thread in servers:
        server.should_exit = True
        thread.join()


def status_for_prefect(address: str) -> int:
    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 2}),
        PrefectHttpxSyncClient(raise_on_all_errors=False) as client,
    ):
        try:
            return client.get(address).status_code
        except httpx.HTTPStatusError as error:
            return error.response.status_code


@pytest.mark.slow
def test_a_client_waits_for_a_taken_database(served):
    assert status_for_prefect(served(BusyDatabase(taken_at_first()))) == 200


def test_nobody_waits_for_ever():
    """A clock that has gone on by more than the patience since anything else was answered."""
    times = iter([0.0, 1.0, PATIENCE_SECONDS - 1, PATIENCE_SECONDS + 1, 700.0, 701.0])
    busy = BusyDatabase(taken_at_first(), now=times.__next__)
    assert [busy.may_wait(status) for status in (503, 503, 503, 200, 503)] == [
        True, True, False, False, True,
    ]  # fmt: skip
