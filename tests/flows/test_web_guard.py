"""The guard before Prefect and MLflow: a real server, called by every name and from every page."""

from __future__ import annotations

import base64
import re
import socket
import threading
import time
from collections.abc import Iterator
from itertools import product

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from dpal.errors import ConfigError
from flows.ops.prefect_app import PASSWORD
from flows.ops.prefect_app import create_app as create_prefect_app
from tasks.tracking.server_app import (
    _SOURCES,
    ADMIN,
    EARLIER,
    READER,
    WORKER,
    AccountsByRole,
    is_allowed,
    requesting_user,
)
from tasks.web_guard import ORIGINS, WebGuard, content_policy, own_origins
from tests.variants import quick_and_slow


async def _answer(request) -> PlainTextResponse:
    return PlainTextResponse("in", headers={"Access-Control-Allow-Origin": "*"})


async def _listen(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("in")
    await socket.close()


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """HOST:PORT of an application that would answer everybody, behind the guard."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    routes = [
        Route("/{path:path}", _answer, methods=["GET", "POST", "PUT", "DELETE", "OPTIONS"]),
        WebSocketRoute("/events", _listen),
    ]
    app = CORSMiddleware(
        Starlette(routes=routes[::-1]), ["*"], ["*"], ["*"], allow_credentials=True
    )
    own = [f"http://127.0.0.1:{port}", f"http://localhost:{port}"]
    guard = WebGuard(app, origins=own, policy=content_policy(), closed=("/docs",))
    server = uvicorn.Server(uvicorn.Config(guard, port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


def status(place: str, method: str = "GET", path: str = "/api/x", **headers: str) -> int:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    answer = httpx.request(method, f"http://{place}{path}", headers=named)
    assert "access-control-allow-origin" not in answer.headers
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
    return answer.status_code


def test_programs_and_its_own_pages_are_answered(place):
    port = place.partition(":")[2]
    assert status(place) == 200
    assert status(place, host=f"localhost:{port}") == 200
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        for name in ("127.0.0.1", "localhost"):
            assert status(place, method, origin=f"http://{name}:{port}") == 200
    assert status(place, "POST", sec_fetch_site="same-origin", sec_fetch_mode="cors") == 200
    assert status(place, sec_fetch_site="none", sec_fetch_mode="navigate") == 200
    assert status(place, path="/docs/x") == 404


@pytest.mark.parametrize(
    "host",
    ["clinic.example.org", "127.0.0.1", "127.0.0.1:80", "0.0.0.0:{port}", "localhost.:{port}", ""],
)
def test_another_name_is_not_answered(place, host):
    assert status(place, host=host.format(port=place.partition(":")[2])) == 403


OTHERS = [
    "null", "", "http://127.0.0.1", "http://127.0.0.1:1", "https://127.0.0.1:{port}",
    "http://127.0.0.1:{port}.example.org", "http://127.0.0.1:{port}, http://x",
]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "DELETE", "OPTIONS"]


@pytest.mark.parametrize(
    ("method", "origin"),
    quick_and_slow(
        [*product(["POST"], OTHERS), *product(METHODS, ["null"])], product(METHODS, OTHERS)
    ),
)
def test_another_origin_is_not_answered(place, method, origin):
    assert status(place, method, origin=origin.format(port=place.partition(":")[2])) == 403


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
def test_only_a_link_leads_here_from_another_page(place, site):
    link = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert status(place, sec_fetch_site=site, **link) == 200
    assert status(place, "POST", sec_fetch_site=site, **link) == 403
    for mode, wanted in (
        ("navigate", "iframe"), ("navigate", "frame"), ("navigate", "object"),
        ("no-cors", "image"), ("no-cors", "script"), ("cors", "empty"), ("websocket", "websocket"),
    ):  # fmt: skip
        about = {"sec_fetch_mode": mode, "sec_fetch_dest": wanted}
        assert status(place, sec_fetch_site=site, **about) == 403


def test_web_sockets_are_guarded_too(place):
    with connect(f"ws://{place}/events") as opened:
        assert opened.recv() == "in"
    with connect(f"ws://{place}/events", origin=Origin(f"http://{place}")) as opened:
        assert opened.recv() == "in"
    for origin in ("http://127.0.0.1:1", "null"):
        with pytest.raises(InvalidStatus, match="403"):
            connect(f"ws://{place}/events", origin=Origin(origin))
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://{place}/events", additional_headers={"Sec-Fetch-Site": "cross-site"})


def test_a_server_without_password_or_names_does_not_start(monkeypatch):
    monkeypatch.delenv(PASSWORD, raising=False)
    monkeypatch.setenv(ORIGINS, "http://127.0.0.1:4200")
    with pytest.raises(ConfigError, match="start runs"):
        create_prefect_app()
    for wrong in ("", " , ", "127.0.0.1:4200", "http://x/path", "ftp://x"):
        monkeypatch.setenv(ORIGINS, wrong)
        with pytest.raises(ConfigError, match=ORIGINS):
            own_origins()


API = "/api/2.0/mlflow"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/1/2/artifacts/x"
WRITES = [
    ("POST", f"{API}/runs/create"), ("POST", f"{API}/runs/log-batch"),
    ("POST", f"{API}/runs/log-metric"), ("POST", f"{API}/runs/update"),
    ("POST", f"{API}/runs/outputs"), ("POST", f"{API}/runs/log-inputs"),
    ("POST", f"{API}/experiments/create"), ("POST", f"{API}/experiments/set-experiment-tag"),
    ("POST", f"{API}/registered-models/create"), ("POST", f"{API}/registered-models/alias"),
    ("POST", f"{API}/model-versions/create"), ("POST", f"{API}/model-versions/set-tag"),
    ("DELETE", f"{API}/model-versions/delete-tag"), ("POST", f"{API}/logged-models"),
    ("PATCH", f"{API}/logged-models/m-1"), ("POST", f"{API}/logged-models/m-1/params"),
    ("PATCH", f"{API}/logged-models/m-1/tags"), ("PUT", ARTIFACTS),
    ("POST", "/api/2.0/mlflow-artifacts/mpu/create/1/2/artifacts/x"),
]  # fmt: skip
READS = [
    ("GET", f"{API}/runs/get"), ("POST", f"{API}/runs/search"), ("POST", "/graphql"),
    ("POST", f"{API}/experiments/search"), ("POST", f"{API}/logged-models/search"),
    ("POST", "/ajax-api/2.0/mlflow/experiments/search-datasets"), ("GET", ARTIFACTS),
]  # fmt: skip
DELETES = [
    ("POST", f"{API}/runs/delete"), ("POST", f"{API}/experiments/delete"),
    ("POST", f"{API}/runs/restore"), ("DELETE", f"{API}/registered-models/delete"),
    ("DELETE", f"{API}/model-versions/delete"), ("POST", f"{API}/registered-models/rename"),
    ("DELETE", f"{API}/logged-models/m-1"), ("DELETE", ARTIFACTS),
    ("POST", f"{API}/users/create"), ("PATCH", f"{API}/users/update-admin"),
    ("PATCH", f"{API}/users/update-password"), ("DELETE", f"{API}/users/delete"),
    ("POST", "/api/3.0/mlflow/users/permissions/grant"), ("POST", "/api/3.0/mlflow/roles/create"),
    ("POST", f"{API}/webhooks"), ("POST", "/api/2.0/mlflow/runs/delete/search"),
    ("POST", "//api/2.0/mlflow/runs/create"), ("POST", f"{API}/runs/create/"),
]  # fmt: skip


def test_workers_log_readers_read_and_neither_deletes():
    for request in WRITES:
        assert is_allowed(WORKER, *request) and is_allowed(EARLIER, *request), request
        assert not is_allowed(READER, *request), request
    for request in READS:
        assert is_allowed(WORKER, *request) and is_allowed(READER, *request), request
    for request in DELETES:
        for name in (WORKER, EARLIER, READER):
            assert not is_allowed(name, *request), request
    for name in (ADMIN, "ada", ""):  # MLflow's own question
        assert all(is_allowed(name, *request) for request in WRITES + READS + DELETES)


def test_both_spellings_of_the_api_are_one():
    for request in WRITES + DELETES:
        method, path = request
        assert is_allowed(READER, method, path.replace("/api/", "/ajax-api/")) is is_allowed(
            READER, *request
        )
        assert is_allowed(WORKER, method, path.replace("/api/", "/ajax-api/")) is is_allowed(
            WORKER, *request
        )


def basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_who_asks_is_read_as_mlflow_reads_it():
    assert requesting_user([]) == ""
    assert requesting_user([f"Basic {basic('dpal-worker:a:b')}"]) == WORKER
    cut = basic(f"{WORKER}:secret")
    for unclear in (
        [f"Basic {cut[:4]}", cut[4:]],  # joined by WSGI: the worker's own name
        [f"Basic {cut[:4]},{cut[4:]}"],
        [f"Basic  {cut}"],
        [f"Basic\t{cut}"],
        [f"Bearer {cut}"],
        ["Basic"],
        [f"Basic {cut}", f"Basic {cut}"],
        ["Basic gICA"],
    ):
        with pytest.raises(ValueError):
            requesting_user(unclear)


@pytest.mark.parametrize(
    ("source", "goes"),
    [
        ("models:/m-0a1b", True),
        ("runs:/0a1b/model", True),
        ("mlflow-artifacts:/1/models/m-0a1b/artifacts", True),
        ("s3://bucket/dpal/confidential/clinic", False),
        ("mlflow-artifacts://elsewhere/1", False),
        ("/srv/clinic", False),
    ],
)
def test_versions_are_of_models_that_the_server_has(source, goes):
    assert bool(re.search(_SOURCES, source)) is goes


def test_what_is_unclear_is_not_passed_on():
    from starlette.testclient import TestClient

    app = AccountsByRole(Starlette(routes=[Route("/{path:path}", _answer, methods=["POST"])]))
    with TestClient(app) as client:
        cut = basic(f"{WORKER}:secret")
        both = [("authorization", f"Basic {cut[:4]}"), ("authorization", cut[4:])]
        assert client.post(f"{API}/runs/delete", headers=both).status_code == 400
        one = {"authorization": f"Basic {cut}"}
        assert client.post(f"{API}/runs/delete", headers=one).status_code == 403
        assert client.post(f"{API}/runs/create", headers=one).status_code == 200
