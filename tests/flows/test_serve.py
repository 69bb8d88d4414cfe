"""`dpal serve`: what it refuses, how it keeps parts alive, and the whole stack for real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from flows.databases import make_databases
from flows.parts import Crew, Part, ServeError
from flows.serve import Stack, mlflow, prefect, require_free, workers
from flows.serve_cli import _alone
from tests.conftest import command, write_config


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stack_in(folder: Path, **changed) -> Stack:
    ports = {"prefect": free_port(), "mlflow": free_port(), "label-studio": free_port()}
    values = {
        "folder": folder,
        "host": "127.0.0.1",
        "name": "127.0.0.1",
        "ports": ports,
        "workers": 1,
        "postgres": None,
        "auth": False,
        "label_studio": None,
    }
    return Stack(**{**values, **changed})


def web_server(port: int) -> Part:
    return Part(
        name="web",
        command=[sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        answers=f"http://127.0.0.1:{port}/",
    )


def test_an_occupied_port_is_refused_with_a_free_one(tmp_path):
    stack = stack_in(tmp_path)
    require_free(stack)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", stack.ports["mlflow"]))
        taken.listen()
        with pytest.raises(
            ServeError, match=r"of mlflow is taken .* say --port mlflow="
        ) as refused:
            require_free(stack)
    free = int(str(refused.value).rpartition("=")[2])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free))


def test_two_on_one_folder_are_refused(tmp_path):
    with (
        _alone(tmp_path / "stack"),
        pytest.raises(ServeError, match="another dpal serve runs on"),
        _alone(tmp_path / "stack"),
    ):
        pass
    with _alone(tmp_path / "stack"):
        pass


def test_strangers_are_let_in_with_passwords_only(dpal, tmp_path):
    refused = dpal("serve", "--host", "0.0.0.0", cwd=tmp_path)
    assert refused.returncode == 2
    assert "say --auth, too" in refused.stderr
    assert not (tmp_path / "stack").exists()


def test_passwords_are_made_once_private_and_on_no_command_line(tmp_path):
    stack = stack_in(tmp_path, auth=True)
    told = stack.environment
    password = told["MLFLOW_TRACKING_PASSWORD"]
    assert told == stack_in(tmp_path, auth=True, ports=stack.ports).environment
    for part in (prefect(stack), mlflow(stack), *workers(stack)):
        assert password not in " ".join(part.command)
    for file in (*tmp_path.glob("secrets/*"), *tmp_path.glob("mlflow/*.ini")):
        assert file.stat().st_mode & 0o077 == 0
    assert prefect(stack).environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"


def test_a_postgres_password_is_refused():
    with pytest.raises(ServeError, match="PGPASSWORD") as refused:
        make_databases("postgresql://me:secret@127.0.0.1")
    assert "secret" not in str(refused.value)


def test_what_dies_is_started_again_and_said(tmp_path):
    said: list[str] = []
    crew, port = Crew(tmp_path, said.append), free_port()
    part = web_server(port)
    crew.start(part)
    first = crew._running[0].process
    first.kill()
    first.wait()
    deadline = time.monotonic() + 30
    while not (len(said) == 2 and crew._running[0].process.pid != first.pid):
        crew.look()
        time.sleep(0.1)
        assert time.monotonic() < deadline
    assert "web died (killed by signal 9); it is started again in 2 s" in said[0]
    assert said[1] == "web is started again"
    last = crew._running[0].process
    # Killed itself, a serve leaves its parts behind; the next one ends them first.
    Crew(tmp_path, said.append).stop_left_over()
    assert "stopping 1 processes" in said[-1]
    last.wait(10)


def test_a_part_that_cannot_start_says_why(tmp_path):
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        crew = Crew(tmp_path, print)
        with pytest.raises(ServeError, match=r"web ended with code 1; .*Address already in use"):
            crew.start(web_server(port))
        crew.stop()


@pytest.mark.slow
def test_the_whole_stack(tmp_path, workplace):
    """Up with passwords, a campaign through it, killed servers come back, Ctrl-C ends all."""
    write_config(workplace / "c.yaml")
    ports = {"prefect": free_port(), "mlflow": free_port()}
    call = [command(), "serve", "c.yaml", "--auth"]
    call += [word for name, port in ports.items() for word in ("--port", f"{name}={port}")]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_API", "PREFECT_HO"))}
    log = workplace / "serve.log"
    with log.open("wb") as file:
        served = subprocess.Popen(call, stdout=file, stderr=file, env={**clean, "COLUMNS": "200"})
    try:
        await_text(log, "Ctrl-C here stops all", served, 400)
        told = dict(
            line.removeprefix("export ").split("=", 1)
            for line in (workplace / "stack" / "env").read_text().splitlines()
        )
        told = {key: value.strip("'") for key, value in told.items()}
        api, tracking = told["PREFECT_API_URL"], told["DPAL_MLFLOW_URI"]
        assert httpx.post(f"{api}/deployments/count", json={}).status_code == 401
        search = f"{tracking}/api/2.0/mlflow/experiments/search?max_results=1"
        assert httpx.get(search).status_code == 401
        mine = {**clean, **told}
        run = [sys.executable, "-m", "prefect", "deployment", "run", "campaign/small", "--watch"]
        assert subprocess.run(run, env=mine, timeout=400, check=False).returncode == 0
        checked = subprocess.run(
            [command(), "doctor", "--config", "c.yaml"], env=mine, capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stdout
        login = (told["MLFLOW_TRACKING_USERNAME"], told["MLFLOW_TRACKING_PASSWORD"])
        found = httpx.get(search.replace("=1", "=10"), auth=login).json()["experiments"]
        assert "dpal" in {one["name"] for one in found}
        servers = {
            name: next(
                one
                for one in psutil.Process(served.pid).children()
                if f"{name} server" in " ".join(one.cmdline())
            )
            for name in ports
        }
        for one in servers.values():
            one.send_signal(signal.SIGKILL)
        for name in ports:
            await_text(log, f"{name} is started again", served, 60)
        await_answer(f"{api}/health", 300)
        await_answer(f"{tracking}/health", 300)
        everyone = psutil.Process(served.pid).children(recursive=True)
    finally:
        served.send_signal(signal.SIGINT)
        served.wait(120)
    assert served.returncode == 0
    assert "all stopped" in log.read_text()
    assert not [one for one in everyone if one.is_running() and one.status() != "zombie"]


def await_text(log: Path, text: str, served: subprocess.Popen[bytes], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while text not in log.read_text():
        assert served.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)


def await_answer(url: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, timeout=5).is_success:
                return
        except httpx.HTTPError:
            time.sleep(1)
    raise AssertionError(f"{url} did not come back")
