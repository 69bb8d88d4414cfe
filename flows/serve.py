"""The whole stack on one machine: which servers there are, how they are started."""

from __future__ import annotations

import getpass
import os
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from flows.databases import database_url
from flows.deployments import CAMPAIGNS, ENVIRONMENT, TRAINING
from flows.parts import Part, ServeError

PORTS = {"prefect": 4200, "mlflow": 5000, "label-studio": 8080}
_USER = "dpal"
_LABELER = "dpal@example.org"


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a person wants to have on this machine.

    Attributes:
      folder: data and logs of the servers.
      host: interface that they listen on.
      name: by which browsers and other machines reach it.
      ports: by server.
      workers: processes that work for the pool `campaigns`; one more works for `gpu`.
      postgres: server that holds all databases; None keeps them in the folder.
      auth: whether Prefect and MLflow ask for a password.
      label_studio: the command that starts it, where it is wanted.
    """

    folder: Path
    host: str
    name: str
    ports: Mapping[str, int]
    workers: int
    postgres: str | None
    auth: bool
    label_studio: str | None

    def url(self, server: str) -> str:
        """Where a server is reached."""
        return f"http://{self.name}:{self.ports[server]}"

    @property
    def ledger(self) -> str | None:
        """The ledger's database, where there is a Postgres."""
        return database_url(self.postgres, "ledger") if self.postgres else None

    @property
    def environment(self) -> dict[str, str]:
        """What workers, and a person's terminal, are told; holds passwords."""
        told = {
            "PREFECT_API_URL": f"{self.url('prefect')}/api",
            "DPAL_MLFLOW_URI": self.url("mlflow"),
        }
        if self.auth:
            password = self._secret("password")
            told["PREFECT_API_AUTH_STRING"] = f"{_USER}:{password}"
            told |= {"MLFLOW_TRACKING_USERNAME": _USER, "MLFLOW_TRACKING_PASSWORD": password}
        if self.label_studio:
            told["LABEL_STUDIO_API_KEY"] = self._secret("label-studio-token")
        return told

    def login(self, server: str) -> str:
        """What a person types into a server's page; empty where it asks for nothing."""
        if server == "label-studio":
            return f"{_LABELER}, {self._secret('label-studio-password')}"
        if not self.auth:
            return ""
        password = self._secret("password")
        return f"{_USER}:{password}" if server == "prefect" else f"{_USER}, {password}"

    def _secret(self, name: str) -> str:
        """A password that was made up once for this folder."""
        file = self.folder / "secrets" / name
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not file.is_file():
            _write(file, secrets.token_hex(20))
        return file.read_text(encoding="utf-8")


def prefect(stack: Stack) -> Part:
    """The Prefect server; it waits for nothing from the internet."""
    environment = {
        **ENVIRONMENT,
        "PREFECT_HOME": str(stack.folder / "prefect"),
        "PREFECT_SERVER_UI_API_URL": f"{stack.url('prefect')}/api",
        "PREFECT_UI_URL": stack.url("prefect"),
    }
    if stack.postgres:
        url = database_url(stack.postgres, "prefect").replace(
            "postgresql:", "postgresql+asyncpg:", 1
        )
        environment["PREFECT_API_DATABASE_CONNECTION_URL"] = url
    if stack.auth:
        environment["PREFECT_SERVER_API_AUTH_STRING"] = stack.login("prefect")
    command = [*_here("prefect"), "server", "start", "--host", stack.host]
    command += ["--port", str(stack.ports["prefect"])]
    answers = f"{stack.url('prefect')}/api/health"
    return Part(name="prefect", command=command, environment=environment, answers=answers)


def mlflow(stack: Stack) -> Part:
    """The MLflow server, files through the server, so that other machines can use it."""
    home = stack.folder / "mlflow"
    home.mkdir(parents=True, exist_ok=True)
    store, users = (f"sqlite:///{home.resolve()}/{name}.sqlite" for name in ("mlflow", "users"))
    if stack.postgres:
        driver = "postgresql+psycopg:"
        store = database_url(stack.postgres, "mlflow").replace("postgresql:", driver, 1)
        users = database_url(stack.postgres, "mlflow_auth").replace("postgresql:", driver, 1)
    # One process: several are killed by their own watchman where a machine is busy for seconds.
    command = [*_here("mlflow"), "server", "--host", stack.host, "--workers", "1"]
    command += ["--port", str(stack.ports["mlflow"]), "--backend-store-uri", store]
    command += ["--artifacts-destination", (home / "artifacts").resolve().as_uri()]
    environment = {**ENVIRONMENT}
    if stack.host != "127.0.0.1":
        port = stack.ports["mlflow"]
        hosts = [f"{name}:{port}" for name in (stack.name, "localhost", "127.0.0.1")]
        command += ["--allowed-hosts", ",".join([*hosts, stack.name])]
        command += ["--cors-allowed-origins", stack.url("mlflow")]
    if stack.auth:
        settings = home / "auth.ini"
        _write(settings, _AUTH.format(users=users))
        environment |= {
            "MLFLOW_AUTH_CONFIG_PATH": str(settings.resolve()),
            "MLFLOW_AUTH_ADMIN_USERNAME": _USER,
            "MLFLOW_AUTH_ADMIN_PASSWORD": stack.environment["MLFLOW_TRACKING_PASSWORD"],
            "MLFLOW_FLASK_SERVER_SECRET_KEY": stack._secret("mlflow-sessions"),
        }
        command += ["--app-name", "basic-auth"]
    answers = f"{stack.url('mlflow')}/health"
    return Part(name="mlflow", command=command, environment=environment, answers=answers)


def label_studio(stack: Stack) -> Part:
    """Label Studio with one user, closed to strangers; sends nothing home."""
    home = stack.folder / "label-studio"
    home.mkdir(parents=True, exist_ok=True)
    environment = {
        "LABEL_STUDIO_USERNAME": _LABELER,
        "LABEL_STUDIO_PASSWORD": stack._secret("label-studio-password"),
        "LABEL_STUDIO_USER_TOKEN": stack._secret("label-studio-token"),
        "LABEL_STUDIO_DISABLE_SIGNUP_WITHOUT_LINK": "true",
        "LABEL_STUDIO_HOST": stack.url("label-studio"),
        "COLLECT_ANALYTICS": "false",
        "SENTRY_DSN": "",
        "FRONTEND_SENTRY_DSN": "",
    }
    if stack.postgres:
        url = sa.make_url(database_url(stack.postgres, "label_studio"))
        environment |= {
            "DJANGO_DB": "default",
            "POSTGRE_NAME": str(url.database),
            "POSTGRE_USER": url.username or getpass.getuser(),
            "POSTGRE_PASSWORD": os.environ.get("PGPASSWORD", ""),
            "POSTGRE_HOST": str(url.query.get("host") or url.host or ""),
            "POSTGRE_PORT": str(url.port or 5432),
        }
    command = [str(stack.label_studio), "start", "--no-browser", "--data-dir", str(home.resolve())]
    command += ["--internal-host", stack.host, "--port", str(stack.ports["label-studio"])]
    command += ["--enable-legacy-api-token"]  # the one that dpal is told can come from us
    answers = f"{stack.url('label-studio')}/health"
    return Part(
        name="label-studio",
        command=command,
        environment=environment,
        answers=answers,
        patience=600.0,  # it migrates its database at the first start
    )


def workers(stack: Stack) -> list[Part]:
    """Process workers for both pools; a training on a machine's one GPU needs no second."""
    told = {**ENVIRONMENT, **stack.environment, "PREFECT_HOME": str(stack.folder / "worker")}
    names = [(CAMPAIGNS, number) for number in range(1, stack.workers + 1)] + [(TRAINING, 1)]
    start = [*_here("prefect"), "worker", "start", "--type", "process"]
    return [
        Part(
            name=f"worker {pool} {number}",
            command=[*start, "--pool", pool, "--name", f"{pool}-{number}"],
            environment=told,
        )
        for pool, number in names
    ]


def require_free(stack: Stack) -> None:
    """Refuses occupied ports, with ones that are free.

    Raises:
      ServeError: somebody else listens there.
    """
    used = [one for one in stack.ports if one != "label-studio" or stack.label_studio]
    for server in used:
        port = stack.ports[server]
        if not _is_free(stack.host, port):
            others = set(stack.ports.values())
            free = next(
                one for one in range(port + 1, 65536) if one not in others and _is_free("", one)
            )
            raise ServeError(
                f"port {port} of {server} is taken by another program; nothing was started, say "
                f"--port {server}={free}"
            )


def find_label_studio() -> str:
    """The command that starts Label Studio: of DPAL_LABEL_STUDIO, or on the path.

    Raises:
      ServeError: it is not installed.
    """
    named = os.environ.get("DPAL_LABEL_STUDIO")
    found = named if named and Path(named).is_file() else shutil.which("label-studio")
    if found is None:
        raise ServeError(
            "Label Studio is not installed; it needs an environment of its own: python3 -m venv "
            "label-studio && label-studio/bin/pip install label-studio, then set "
            "DPAL_LABEL_STUDIO=$PWD/label-studio/bin/label-studio"
        )
    return found


def write_environment(stack: Stack) -> Path:
    """Writes what a terminal has to be told to use these servers; readable by this user alone."""
    lines = [f"export {key}={shlex.quote(value)}\n" for key, value in stack.environment.items()]
    file = stack.folder / "env"
    _write(file, "".join(lines))
    return file


def _here(program: str) -> list[str]:
    """A program of the environment that this command runs in."""
    return [sys.executable, "-m", program]


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _write(file: Path, text: str) -> None:
    """Writes a file that holds a secret."""
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)


_AUTH = """[mlflow]
default_permission = READ
database_uri = {users}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""
