"""`dpal serve`: what it refuses, how it keeps parts alive, and the whole stack for real."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient

from dpal.config.campaign import parse_config
from flows.cli.serve import _allow, _alone
from flows.ops.databases import make_databases
from flows.ops.stack_services import (
    _AUTH,
    Stack,
    label_studio_service,
    mlflow_service,
    prefect_service,
    require_free,
    worker_services,
)
from flows.ops.supervisor import ServeError, Service, Supervisor
from tasks.allow_list import read_allow_list
from tasks.tracking.server_app import ADMIN
from tests.conftest import ROOT, command, small_values, write_config
from tests.flows.calling import call, sentence


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
        "label_studio": None,
    }
    return Stack(**{**values, **changed})


def web_server(port: int) -> Service:
    return Service(
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
        pytest.raises(ServeError, match="another dpal"),
        _alone(tmp_path / "stack"),
    ):
        pass
    with _alone(tmp_path / "stack"):
        pass


def test_a_folder_that_others_can_write_into_is_refused(tmp_path):
    """They could have put their own settings of the servers there."""
    folder = tmp_path / "stack"
    folder.mkdir()
    for mode in (0o777, 0o770):
        folder.chmod(mode)
        with pytest.raises(ServeError, match="chmod go-w"), _alone(folder):
            pass
    folder.chmod(0o755)
    with _alone(folder):
        pass
    if os.geteuid() == 0:
        os.chown(folder, 12345, -1)
        with pytest.raises(ServeError, match="another user"), _alone(folder):
            pass


def test_mlflow_is_started_without_keys_to_object_storage(tmp_path, monkeypatch):
    """It reads any place that its accounts name."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-zq")
    told = tmp_path / "told.json"
    program = f"import json, os; json.dump(dict(os.environ), open({str(told)!r}, 'w'))"
    (tmp_path / "crew").mkdir()
    crew = Supervisor(tmp_path / "crew", print)
    crew._spawn(
        replace(mlflow_service(stack_in(tmp_path)), command=[sys.executable, "-c", program])
    ).wait(60)
    environment = json.loads(told.read_text())
    assert "secret-zq" not in told.read_text()
    assert environment["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
    assert environment["PATH"] == os.environ["PATH"]


def test_passwords_are_made_once_private_and_on_no_command_line(tmp_path):
    stack = stack_in(tmp_path)
    parts = (prefect_service(stack), mlflow_service(stack), *worker_services(stack))
    told = stack.environment
    again = stack_in(tmp_path, ports=stack.ports)
    assert told == again.environment
    assert stack.mlflow_passwords == again.mlflow_passwords
    found = [file.read_text() for file in (tmp_path / "secrets").iterdir()]
    assert len(found) == len(set(found)) == 6, "no two doors have one key"
    for secret in found:
        assert len(secret) >= 40
        for part in parts:
            assert secret not in " ".join(part.command)
    for file in (tmp_path / "secrets", *tmp_path.glob("secrets/*"), *tmp_path.glob("mlflow/*.ini")):
        assert file.stat().st_mode & 0o077 == 0
    assert stack.mlflow_passwords[ADMIN] not in " ".join(told.values())
    for part in parts[2:]:
        assert stack.mlflow_passwords[ADMIN] not in part.environment.values()
    assert prefect_service(stack).environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"


def test_a_password_of_ones_own_is_taken_and_one_that_others_can_read_is_not(tmp_path):
    stack, secrets = stack_in(tmp_path), tmp_path / "secrets"
    secrets.mkdir(mode=0o755)
    (secrets / "prefect").write_text("ada:correct horse battery staple\n")
    with pytest.raises(ServeError, match="can be read by others"):
        _ = stack.environment
    (secrets / "prefect").chmod(0o600)
    assert stack.environment["PREFECT_API_AUTH_STRING"] == "ada:correct horse battery staple"
    assert secrets.stat().st_mode & 0o077 == 0
    (secrets / "prefect").write_text("")
    with pytest.raises(ServeError, match="is empty"):
        _ = stack.environment


def test_workers_of_an_earlier_version_keep_prefects_password(tmp_path):
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    descriptor = os.open(secrets / "password", os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, b"0123456789")
    os.close(descriptor)
    stack = stack_in(tmp_path)
    assert stack.environment["PREFECT_API_AUTH_STRING"] == "dpal:0123456789"
    assert "0123456789" not in stack.mlflow_passwords.values()
    (secrets / "prefect").unlink()
    assert "0123456789" not in stack.environment["PREFECT_API_AUTH_STRING"], "removed for good"


def test_label_studio_asks_nobody_outside(tmp_path):
    told = label_studio_service(stack_in(tmp_path, label_studio="label-studio")).environment
    quiet = yaml.safe_load((ROOT / "mlflow" / "compose.yaml").read_text())["services"]
    for environment in (told, quiet["label-studio"]["environment"]):
        assert environment["COLLECT_ANALYTICS"] == environment["LATEST_VERSION_CHECK"] == "false"
        assert environment["SENTRY_DSN"] == environment["FRONTEND_SENTRY_DSN"] == ""


def test_servers_answer_to_their_own_names_only(tmp_path):
    ports = {"prefect": 4200, "mlflow": 5000, "label-studio": 8080}
    origins = {"prefect": "https://runs.example.org"}
    stack = stack_in(tmp_path, ports=ports, name="clinic", host="0.0.0.0", origins=origins)
    own = prefect_service(stack).environment["DPAL_WEB_ORIGINS"].split(",")
    names = ("clinic", "127.0.0.1", "localhost")
    assert own == [*(f"http://{name}:4200" for name in names), "https://runs.example.org"]
    command = " ".join(mlflow_service(stack).command)
    assert "--allowed-hosts clinic:5000,127.0.0.1:5000,localhost:5000 " in command
    assert "--cors-allowed-origins http://clinic:5000,http://127.0.0.1:5000," in command


def test_an_origin_is_a_server_and_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in ("https://x.org", "prefect=x.org", "mlflow=https://x.org/path", "x=https://x.org"):
        assert "prefect=https://runs.example.org" in sentence(call("serve", "--origin", wrong))
    assert not (tmp_path / "stack").exists()


def test_the_first_list_is_what_the_owner_started_with_and_then_his_own(workplace, capsys):
    config, file = parse_config(small_values()), workplace / "stack" / "allow.yaml"
    other = parse_config(small_values(runtime__store="s3://bucket/dpal"))
    _allow(file, [])
    assert not file.exists()
    _allow(file, [config])
    first = file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert read_allow_list(file).together["small"] == {
        "data.pool": (str(workplace.resolve() / "pool.parquet"),),
        "data.validation": (str(workplace.resolve() / "validation.parquet"),),
        "runtime.artifacts": (str(workplace.resolve() / "artifacts"),),
        "validation.public": (True,),
    }
    _allow(file, [config, other])
    assert file.read_text() == first
    said = " ".join(capsys.readouterr().out.split())
    assert "(runtime.store)" in said


def test_a_postgres_password_is_refused():
    with pytest.raises(ServeError, match="PGPASSWORD") as refused:
        make_databases("postgresql://me:secret@127.0.0.1")
    assert "secret" not in str(refused.value)


def test_what_dies_is_started_again_and_said(tmp_path):
    said: list[str] = []
    crew, port = Supervisor(tmp_path, said.append), free_port()
    part = web_server(port)
    crew.start(part)
    assert [line.partition(" ")[0] for line in said] == ["starting", "web"]  # and that it answers
    said.clear()
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
    Supervisor(tmp_path, said.append).stop_left_over()
    assert "stopping 1 processes" in said[-1]
    last.wait(10)


def test_a_part_that_cannot_start_says_why(tmp_path):
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        crew = Supervisor(tmp_path, print)
        with pytest.raises(ServeError, match=r"code 1; .*in use"):
            crew.start(web_server(port))
        crew.stop()


@pytest.mark.slow
@pytest.mark.timing
def test_the_whole_stack(workplace):
    """Up with passwords, a campaign through it, killed servers come back, Ctrl-C ends all."""
    write_config(workplace / "c.yaml")
    with serving("c.yaml") as stack:
        api, tracking, mine = stack.api, stack.tracking, stack.environment
        assert ask("GET", f"{api}/admin/version").status_code == 401
        assert ask("POST", f"{api}/deployments/count", json={}).status_code == 403  # no CSRF token
        page = {"Origin": "http://127.0.0.1:1"}
        foreign = ask("GET", f"{api}/admin/version", auth=stack.prefect, headers=page)
        assert foreign.status_code == 403
        assert "access-control-allow-origin" not in foreign.headers
        search = f"{tracking}/api/2.0/mlflow/experiments/search?max_results=10"
        assert ask("GET", search).status_code == 401
        assert deployed_run("small", mine) == 0
        checked = subprocess.run(
            [command(), "doctor", "--config", "c.yaml"], env=mine, capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stdout
        assert "asks for a password and answers no foreign page" in checked.stdout
        found = ask("GET", search, auth=stack.worker).json()["experiments"]
        assert "dpal" in {one["name"] for one in found}
        # What the owner's list does not have is refused, whatever the run's parameters say.
        loot = {"store": (workplace / "loot").as_uri(), "store_holds": "everything"}
        values = {**small_values(name="stolen"), "runtime": loot}
        state = run_of_api(stack, {"config": values}, command="touch loot", env={"DPAL_ALLOW": "/"})
        assert state["type"] == "FAILED"
        assert "runtime.store" in state["message"] and "not allowed" in state["message"]
        assert not (workplace / "loot").exists()
        assert not (workplace / "artifacts" / "stolen").exists()
        servers = {
            name: next(
                one
                for one in psutil.Process(stack.process.pid).children()
                if f"{name}" in " ".join(one.cmdline()[:5])
            )
            for name in ("prefect_app", "mlflow")
        }
        for one in servers.values():
            one.send_signal(signal.SIGKILL)
        for name in ("prefect", "mlflow"):
            await_text(stack.log, f"{name} is started", stack.process, 60)
        await_answer(f"{api}/health", 300)
        await_answer(f"{tracking}/health", 300)
        everyone = psutil.Process(stack.process.pid).children(recursive=True)
        lines = [" ".join(one.cmdline()) for one in everyone]
        said = [file.read_text(errors="replace") for file in Path("stack/logs").iterdir()]
        for secret in Path("stack/secrets").iterdir():
            password = secret.read_text().rpartition(":")[2]
            assert not any(password in text for text in (*lines, *said, stack.log.read_text()))
    assert stack.process.returncode == 0
    assert "all stopped" in stack.log.read_text()
    assert not [one for one in everyone if one.is_running() and one.status() != "zombie"]


@pytest.mark.slow
def test_a_stack_of_an_earlier_version_goes_on(workplace):
    """Prefect's history, MLflow's runs and both passwords are kept; workers administer no more."""
    write_config(workplace / "c.yaml")
    secrets = workplace / "stack" / "secrets"
    secrets.mkdir(parents=True, mode=0o700)
    old = "a0b1c2d3e4f5a0b1c2d3"
    descriptor = os.open(secrets / "password", os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, old.encode())
    os.close(descriptor)
    earlier_mlflow(workplace / "stack" / "mlflow", old)
    with serving("c.yaml") as stack:
        login = ("dpal", old)
        assert "administers no" in stack.log.read_text()
        version = ask("GET", f"{stack.api}/admin/version", auth=login)
        assert version.is_success, "Prefect's password is the one that other machines know"
        path = f"{stack.tracking}/api/2.0/mlflow"
        found = ask("GET", f"{path}/experiments/search?max_results=10", auth=login).json()
        names = {one["name"]: one["experiment_id"] for one in found["experiments"]}
        assert {"dpal", "of-somebody"} <= set(names)
        content = {"experiment_id": names["dpal"]}
        made = ask("POST", f"{path}/runs/create", json=content, auth=login)
        assert made.is_success, "workers elsewhere log on with the account they know"
        gone = ask("POST", f"{path}/experiments/delete", json=content, auth=login)
        assert gone.status_code == 403
        admin = (ADMIN, (secrets / "mlflow-admin").read_text())
        assert ask("GET", f"{path}/users/current", auth=admin).json()["user"]["is_admin"]


@pytest.mark.slow
def test_a_stack_without_passwords_gets_them(workplace):
    """What it holds is kept, and asks for passwords from now on."""
    write_config(workplace / "c.yaml")
    earlier_mlflow(workplace / "stack" / "mlflow", password=None)
    with serving("c.yaml") as stack:
        assert ask("GET", f"{stack.api}/admin/version").status_code == 401
        assert ask("GET", f"{stack.api}/admin/version", auth=stack.prefect).is_success
        path = f"{stack.tracking}/api/2.0/mlflow"
        search = f"{path}/experiments/search?max_results=10"
        assert ask("GET", search).status_code == 401
        reader = ("dpal-reader", Path("stack/secrets/mlflow-reader").read_text())
        names = {one["name"]: one["experiment_id"] for one in ask_json(search, reader)}
        assert {"dpal", "of-somebody"} <= set(names)
        content = {"experiment_id": names["of-somebody"]}
        logged = ask("POST", f"{path}/runs/create", json=content, auth=stack.worker)
        assert logged.is_success, "workers go on in experiments of the time before"
        for login in (reader, stack.worker):
            gone = ask("POST", f"{path}/experiments/delete", json=content, auth=login)
            assert gone.status_code == 403
        assert stack.worker[0] == "dpal-worker"
        assert ask("POST", f"{path}/runs/create", json=content, auth=reader).status_code == 403


def ask_json(search: str, login: tuple[str, str]) -> list[dict[str, Any]]:
    """The experiments that an account sees."""
    return list(ask("GET", search, auth=login).raise_for_status().json()["experiments"])


def earlier_mlflow(home: Path, password: str | None) -> None:
    """What `dpal serve` of an earlier version left: an experiment, with --auth an administrator."""
    home.mkdir(parents=True)
    port, environment = free_port(), dict(os.environ)
    store = f"sqlite:///{home}/mlflow.sqlite"
    words = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", store]
    words += ["--artifacts-destination", (home / "artifacts").as_uri()]
    if password:
        settings = home / "auth.ini"
        settings.write_text(_AUTH.format(users=f"sqlite:///{home}/users.sqlite"))
        environment |= {
            "MLFLOW_AUTH_CONFIG_PATH": str(settings),
            "MLFLOW_AUTH_ADMIN_USERNAME": "dpal",
            "MLFLOW_AUTH_ADMIN_PASSWORD": password,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "sessions",
        }
        words += ["--app-name", "basic-auth"]
    with subprocess.Popen(words, env=environment, start_new_session=True) as server:
        try:
            await_answer(f"http://127.0.0.1:{port}/health", 240)
            httpx.post(
                f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/create",
                json={"name": "of-somebody"},
                auth=("dpal", password) if password else None,
                timeout=60,
            ).raise_for_status()
        finally:
            os.killpg(server.pid, signal.SIGTERM)


@dataclass
class Served:
    """A running `dpal serve`, and what `source stack/env` tells a terminal."""

    process: subprocess.Popen[bytes]
    log: Path
    environment: dict[str, str]

    @property
    def api(self) -> str:
        return self.environment["PREFECT_API_URL"]

    @property
    def tracking(self) -> str:
        return self.environment["DPAL_MLFLOW_URI"]

    @property
    def prefect(self) -> tuple[str, str]:
        name, _, password = self.environment["PREFECT_API_AUTH_STRING"].partition(":")
        return name, password

    @property
    def worker(self) -> tuple[str, str]:
        names = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
        return self.environment[names[0]], self.environment[names[1]]


@contextmanager
def serving(*files: str) -> Iterator[Served]:
    """`dpal serve` in this folder, with the environment of somebody who has none of ours."""
    ports = {"prefect": free_port(), "mlflow": free_port()}
    call = [command(), "serve", *files]
    call += [word for name, port in ports.items() for word in ("--port", f"{name}={port}")]
    ours = ("PREFECT_API", "PREFECT_HO", "DPAL_ALLOW")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    log = Path("serve.log").absolute()
    with log.open("wb") as file:
        served = subprocess.Popen(call, stdout=file, stderr=file, env={**clean, "COLUMNS": "200"})
    try:
        await_text(log, "Ctrl-C here", served, 400)
        lines = (line.removeprefix("export ") for line in Path("stack/env").read_text().split("\n"))
        told = dict(line.split("=", 1) for line in lines if line)
        told = {key: value.strip("'") for key, value in told.items()}
        yield Served(served, log, {**clean, **told})
    finally:
        served.send_signal(signal.SIGINT)
        served.wait(120)


def ask(method: str, url: str, **about: Any) -> httpx.Response:
    """Asks a server that may be busy."""
    return httpx.request(method, url, timeout=60, **about)


def deployed_run(name: str, environment: dict[str, str]) -> int:
    """What `prefect deployment run --watch` says in the end."""
    words = [sys.executable, "-m", "prefect", "deployment", "run", f"campaign/{name}", "--watch"]
    return subprocess.run(words, env=environment, timeout=400, check=False).returncode


def run_of_api(stack: Served, parameters: dict[str, Any], **variables: Any) -> dict[str, Any]:
    """The last state of a run that somebody with the password starts by Prefect's API."""
    login = stack.environment["PREFECT_API_AUTH_STRING"]
    with SyncPrefectClient(stack.api, auth_string=login) as client:
        deployment = client.read_deployment_by_name("campaign/campaign").id
        run = client.create_flow_run_from_deployment(
            deployment, parameters=parameters, job_variables=variables
        )
        deadline = time.monotonic() + 240
        while not (run.state and run.state.is_final()) and time.monotonic() < deadline:
            time.sleep(1)
            run = client.read_flow_run(run.id)
    assert run.state is not None
    return {"type": run.state.type.value, "message": run.state.message or ""}


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
