"""An MLflow server on Postgres that asks for a name, dies, and comes back."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import mlflow
import pytest
import sqlalchemy as sa

from dpal.config.campaign import parse_config
from dpal.errors import ConfigError
from tasks.tracking.mlflow_connection import (
    PATIENCE,
    TrackingError,
    retry_while_mlflow_is_down,
    watching_server,
)
from tests.conftest import small_values, write_config
from tests.flows.calling import call, sentence
from tests.flows.pooling import LONG, Site, await_true
from tests.postgres import postgres, postgres_server  # noqa: F401  fixtures

PASSWORD = "correct horse battery"
SETTINGS = """[mlflow]
default_permission = READ
database_uri = {users}
admin_username = keeper
admin_password = {password}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""


class Server:
    """A server that can be killed and started again where it was."""

    def __init__(self, place: Path, database: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri, self._place = f"http://127.0.0.1:{self.port}", place
        store = database.replace("postgresql:", "postgresql+psycopg:", 1)
        settings = place / "auth.ini"
        users = f"sqlite:///{place / 'users.sqlite'}"
        settings.write_text(SETTINGS.format(users=users, password=PASSWORD))
        self._command = [
            *(sys.executable, "-m", "mlflow", "server", "--port", str(self.port), "--workers", "1"),
            *("--backend-store-uri", store, "--artifacts-destination", str(place / "files")),
            *("--app-name", "basic-auth"),
        ]
        self._environment = {
            **os.environ,
            "MLFLOW_AUTH_CONFIG_PATH": str(settings),
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "of a test",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._place / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if httpx.get(f"{self.uri}/health", timeout=5).is_success:
                    return
            except httpx.HTTPError:
                time.sleep(0.5)
        raise RuntimeError((self._place / "server.log").read_text()[-2000:])

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            self._process.wait(30)
            self._process = None


@pytest.fixture
def server(tmp_path, postgres) -> Iterator[Server]:  # noqa: F811
    place = tmp_path / "server"
    place.mkdir()
    made = Server(place, postgres)
    made.start()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def keeper(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "keeper")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)


def test_a_password_in_the_settings_is_refused():
    with pytest.raises(ConfigError, match=r"runtime\.mlflow_uri holds"):
        parse_config(small_values(runtime__mlflow_uri="http://ada:secret@127.0.0.1:5000"))
    parse_config(small_values(runtime__mlflow_uri="http://127.0.0.1:5000"))


def test_a_server_that_is_not_there_is_one_sentence(monkeypatch, caplog):
    """Nobody listens on port 9; asked before anything is spent, it is not waited for."""
    uri, began = "http://127.0.0.1:9", time.monotonic()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingError, match=r"not take .* since .* UTC"):
        retry_while_mlflow_is_down(uri, asking(uri), patient=False)
    monkeypatch.setenv(PATIENCE, "1")
    with caplog.at_level(logging.INFO, "dpal"), pytest.raises(TrackingError, match="nothing was"):
        retry_while_mlflow_is_down(uri, asking(uri))
    assert [one for one in caplog.messages if "answer since" in one]
    assert time.monotonic() - began < 60


def asking(uri: str):
    def ask():
        mlflow.set_tracking_uri(uri)
        return mlflow.search_experiments()

    return ask


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_a_campaign_on_a_server_that_asks_for_a_name(
    server,
    keeper,
    workplace,
    monkeypatch,
    postgres,  # noqa: F811
):
    schedule = {"initial": 60, "queries": [], "batch_size": 30, "epochs_per_phase": 1}
    config = write_config(workplace / "c.yaml", runtime__mlflow_uri=server.uri, schedule=schedule)
    monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD")
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
    said = sentence(last_line(call("run", str(config))))
    assert "MLFLOW_TRACKING_USERNAME" in said
    assert not (workplace / "artifacts" / "small" / "phase-0").exists()  # nothing was spent
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "keeper")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    done = call("run", str(config))
    assert done.returncode == 0, done
    mlflow.set_tracking_uri(server.uri)
    runs = mlflow.search_runs(experiment_names=["dpal"], output_format="list")
    parent = next(run for run in runs if run.data.tags["dpal.phase"] == "all")
    assert (parent.info.status, parent.data.tags["dpal.state"]) == ("FINISHED", "finished")
    page = mlflow.artifacts.download_artifacts(f"runs:/{parent.info.run_id}/report.html")
    assert "promise is kept" in Path(page).read_text()
    why = ("--reason", "first", "--ledger", "artifacts", "--mlflow", server.uri)
    promoted = call("promote", "models:/dpal-small/1", *why)
    assert promoted.returncode == 0, promoted
    tags = mlflow.MlflowClient().get_model_version("dpal-small", "1").tags
    assert tags["champion.by"] == "keeper"
    # Neither the settings nor what was told to the server hold the password.
    engine = sa.create_engine(postgres.replace("postgresql:", "postgresql+psycopg:", 1))
    with engine.connect() as connection:
        for table in ("tags", "params", "experiment_tags", "model_version_tags"):
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}").fetchall()
            assert rows and PASSWORD not in str(rows)
    engine.dispose()
    assert PASSWORD not in (workplace / "artifacts" / "small" / "campaign.json").read_text()


def last_line(result):
    result.stderr = result.stderr.strip().splitlines()[-1] + "\n"
    return result


@pytest.mark.slow
@pytest.mark.timing
def test_a_server_that_dies_is_waited_for_in_words(server, keeper, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv(PATIENCE, "300")
    assert retry_while_mlflow_is_down(server.uri, asking(server.uri))
    server.kill()
    monkeypatch.setattr("tasks.tracking.mlflow_connection._LOOK", 1.0)
    runtime = parse_config(small_values(runtime__mlflow_uri=server.uri)).runtime
    with caplog.at_level(logging.INFO, "dpal"), watching_server(runtime):
        time.sleep(4)  # a phase trains, and nobody asks the server
        assert any("training goes" in one for one in caplog.messages)
        back = threading.Timer(5.0, server.start)
        back.start()
        assert retry_while_mlflow_is_down(
            server.uri, asking(server.uri)
        )  # the same call, on a server that came back
        back.join()
    words = " | ".join(caplog.messages)
    assert "answer since" in words and "answers again" in words
    assert server.uri in words


@pytest.mark.slow
@pytest.mark.usefixtures("keeper")
@pytest.mark.timing
def test_a_campaign_outlives_the_mlflow_server(server, tmp_path, monkeypatch):
    """Killed while a phase trains: told within two minutes, and its results are there later."""
    monkeypatch.setenv(PATIENCE, "300")  # as it is without a setting
    site = Site(tmp_path)
    try:
        site.server()
        mine = {"runtime__training_pool": None, "runtime__mlflow_uri": server.uri}
        campaign = site.campaign("kept", **LONG | mine)
        running = campaign.run()
        before = campaign.await_checkpoint()
        server.kill()
        killed = time.monotonic()
        await_true(lambda: "answer since" in campaign.said, 120)
        assert time.monotonic() - killed < 120
        campaign.await_checkpoint(before)  # training goes on
        await_true(lambda: "trying for" in campaign.said, 300)
        server.start()
        assert running.wait(300) == 0, campaign.said
        assert "answers again" in campaign.said
        campaign.require_whole()
        mlflow.set_tracking_uri(server.uri)
        runs = mlflow.search_runs(experiment_names=["dpal"], output_format="list")
        assert {run.data.tags["dpal.phase"] for run in runs} == {"all", "0"}
        assert {run.info.status for run in runs} == {"FINISHED"}
    finally:
        site.close()
