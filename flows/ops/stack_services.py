"""The whole stack on one machine: which servers there are, how they are started."""

from __future__ import annotations

import getpass
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import sqlalchemy as sa

from dpal.runs.label_studio_access import HOOK_SECRET
from flows.ops.databases import database_url
from flows.ops.deployments import CAMPAIGNS, ENVIRONMENT, TRAINING
from flows.ops.stack_secrets import StackSecrets, prefect_login
from flows.ops.supervisor import COMMAND, ServeError, Service
from tasks.allow_list import ALLOW
from tasks.tracking.server_app import ADMIN, READER, WORKER
from tasks.web_guard import ORIGINS

PORTS = {"prefect": 4200, "mlflow": 5000, "label-studio": 8080}
LOOPBACK = "127.0.0.1"
_LABELER = "dpal@example.org"
_MLFLOW_SECRETS = {ADMIN: "mlflow-admin", WORKER: "mlflow-worker", READER: "mlflow-reader"}


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
      label_studio: the command that starts it, where it is wanted.
      listen: port on which the desk hears that labels came in; None does not listen.
      origins: by server, where else its pages are shown: by a reverse proxy with TLS.
    """

    folder: Path
    host: str
    name: str
    ports: Mapping[str, int]
    workers: int
    postgres: str | None
    label_studio: str | None
    listen: int | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    def url(self, server: str) -> str:
        """Where a server is reached."""
        return f"http://{self.name}:{self.ports[server]}"

    def own_origins(self, server: str) -> list[str]:
        """Where a server's own pages are, as browsers on this machine and elsewhere name it."""
        names = dict.fromkeys((self.name, LOOPBACK, "localhost"))
        own = [f"http://{name}:{self.ports[server]}" for name in names]
        return [*own, self.origins[server]] if server in self.origins else own

    @property
    def secrets(self) -> StackSecrets:
        """The stack's passwords."""
        return StackSecrets(self.folder / "secrets")

    @property
    def allow_file(self) -> Path:
        """What runs from Prefect may use here."""
        return self.folder / "allow.yaml"

    @property
    def ledger(self) -> str | None:
        """The ledger's database, where there is a Postgres."""
        return database_url(self.postgres, "ledger") if self.postgres else None

    @property
    def mlflow_passwords(self) -> dict[str, str]:
        """Of MLflow's accounts, by name."""
        return {name: self.secrets.read(file) for name, file in _MLFLOW_SECRETS.items()}

    @property
    def environment(self) -> dict[str, str]:
        """What workers, and a person's terminal, are told; holds passwords."""
        told = {
            "PREFECT_API_URL": f"{self.url('prefect')}/api",
            "PREFECT_API_AUTH_STRING": prefect_login(self.secrets),
            "DPAL_MLFLOW_URI": self.url("mlflow"),
            "MLFLOW_TRACKING_USERNAME": WORKER,
            "MLFLOW_TRACKING_PASSWORD": self.mlflow_passwords[WORKER],
            HOOK_SECRET: self.secrets.read("webhook"),
            ALLOW: str(self.allow_file),
        }
        if self.label_studio:
            told["LABEL_STUDIO_API_KEY"] = self.secrets.read("label-studio-token")
        return told

    def logins(self) -> list[tuple[str, str, str, str]]:
        """What a person opens: server, address, account, and the file of its password."""
        accounts = [
            ("prefect", "", "prefect"),
            ("mlflow", f"{READER}, reads", _MLFLOW_SECRETS[READER]),
            ("mlflow", f"{ADMIN}, also deletes", _MLFLOW_SECRETS[ADMIN]),
        ]
        if self.label_studio:
            accounts.append(("label-studio", _LABELER, "label-studio-password"))
        return [
            (server, self.origins.get(server, self.url(server)), account, f"secrets/{name}")
            for server, account, name in accounts
        ]


def prefect_service(stack: Stack) -> Service:
    """The Prefect server, which answers its own pages and who knows the password."""
    environment = {
        **ENVIRONMENT,
        "PREFECT_HOME": str(stack.folder / "prefect"),
        "PREFECT_UI_URL": stack.origins.get("prefect", stack.url("prefect")),
        "PREFECT_SERVER_API_AUTH_STRING": prefect_login(stack.secrets),
        ORIGINS: ",".join(stack.own_origins("prefect")),
    }
    if stack.postgres:
        url = database_url(stack.postgres, "prefect").replace(
            "postgresql:", "postgresql+asyncpg:", 1
        )
        environment["PREFECT_API_DATABASE_CONNECTION_URL"] = url
    command = [*_here("flows.ops.prefect_app"), "--host", stack.host]
    command += ["--port", str(stack.ports["prefect"])]
    answers = f"{stack.url('prefect')}/api/health"
    return Service(name="prefect", command=command, environment=environment, answers=answers)


def mlflow_service(stack: Stack) -> Service:
    """The MLflow server, files through the server, so that other machines can use it."""
    home = stack.folder / "mlflow"
    home.mkdir(parents=True, exist_ok=True)
    store, users = (f"sqlite:///{home.resolve()}/{name}.sqlite" for name in ("mlflow", "users"))
    if stack.postgres:
        driver = "postgresql+psycopg:"
        store = database_url(stack.postgres, "mlflow").replace("postgresql:", driver, 1)
        users = database_url(stack.postgres, "mlflow_auth").replace("postgresql:", driver, 1)
    _require_own_mlflow()
    origins = stack.own_origins("mlflow")
    # One process: several are killed by their own watchman where a machine is busy for seconds.
    command = [*_here("mlflow"), "server", "--host", stack.host, "--workers", "1"]
    command += ["--port", str(stack.ports["mlflow"]), "--backend-store-uri", store]
    command += ["--artifacts-destination", (home / "artifacts").resolve().as_uri()]
    command += ["--app-name", "dpal", "--x-frame-options", "SAMEORIGIN"]
    command += ["--allowed-hosts", ",".join(urlsplit(origin).netloc for origin in origins)]
    command += ["--cors-allowed-origins", ",".join(origins)]
    settings = home / "auth.ini"
    _write(settings, _AUTH.format(users=users))
    environment = {
        **ENVIRONMENT,
        "MLFLOW_AUTH_CONFIG_PATH": str(settings.resolve()),
        "MLFLOW_AUTH_ADMIN_USERNAME": ADMIN,
        "MLFLOW_AUTH_ADMIN_PASSWORD": stack.mlflow_passwords[ADMIN],
        "MLFLOW_FLASK_SERVER_SECRET_KEY": stack.secrets.read("mlflow-sessions"),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # for language models
        ORIGINS: ",".join(origins),
    }
    answers = f"{stack.url('mlflow')}/health"
    return Service(
        name="mlflow",
        command=command,
        environment=environment | _NO_CLOUD,
        hides=_CLOUD,
        answers=answers,
    )


def label_studio_service(stack: Stack) -> Service:
    """Label Studio with one user, closed to strangers; sends nothing home."""
    home = stack.folder / "label-studio"
    home.mkdir(parents=True, exist_ok=True)
    environment = {
        "LABEL_STUDIO_USERNAME": _LABELER,
        "LABEL_STUDIO_PASSWORD": stack.secrets.read("label-studio-password"),
        "LABEL_STUDIO_USER_TOKEN": stack.secrets.read("label-studio-token"),
        "LABEL_STUDIO_DISABLE_SIGNUP_WITHOUT_LINK": "true",
        "LABEL_STUDIO_HOST": stack.url("label-studio"),
        "COLLECT_ANALYTICS": "false",
        "SENTRY_DSN": "",
        "FRONTEND_SENTRY_DSN": "",
        "LATEST_VERSION_CHECK": "false",  # it would ask pypi.org
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
    return Service(
        name="label-studio",
        command=command,
        environment=environment,
        answers=answers,
        patience=600.0,  # it migrates its database at the first start
    )


def worker_services(stack: Stack) -> list[Service]:
    """Process workers for both pools; a training on a machine's one GPU needs no second."""
    told = {**ENVIRONMENT, **stack.environment, "PREFECT_HOME": str(stack.folder / "worker")}
    names = [(CAMPAIGNS, number) for number in range(1, stack.workers + 1)] + [(TRAINING, 1)]
    start = [*_here(COMMAND), "worker"]
    return [
        Service(
            name=f"worker {pool} {number}",
            command=[*start, pool, "--name", f"{pool}-{number}"],
            environment=told,
        )
        for pool, number in names
    ]


def desk_service(stack: Stack) -> Service:
    """Whoever notices labels and new files."""
    heard = ["--host", stack.host, "--listen", str(stack.listen)] if stack.listen else []
    return Service(
        name="desk",
        command=[*_here(COMMAND), "desk", *heard],
        environment={
            **ENVIRONMENT,
            **stack.environment,
            "PREFECT_HOME": str(stack.folder / "worker"),
        },
    )


def require_free(stack: Stack) -> None:
    """Refuses occupied ports, with ones that are free.

    Raises:
      ServeError: somebody else listens there.
    """
    used = [server for server in stack.ports if server != "label-studio" or stack.label_studio]
    for server in used:
        port = stack.ports[server]
        if not _is_free(stack.host, port):
            others = set(stack.ports.values())
            free = next(
                candidate
                for candidate in range(port + 1, 65536)
                if candidate not in others and _is_free("", candidate)
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
    command = named if named and Path(named).is_file() else shutil.which("label-studio")
    if command is None:
        raise ServeError(
            "Label Studio is not installed; it needs an environment of its own: python3 -m venv "
            "label-studio && label-studio/bin/pip install label-studio, then set "
            "DPAL_LABEL_STUDIO=$PWD/label-studio/bin/label-studio"
        )
    return command


def write_environment(stack: Stack) -> Path:
    """Writes what a terminal has to be told to use these servers; readable by this user alone."""
    lines = [f"export {key}={shlex.quote(value)}\n" for key, value in stack.environment.items()]
    file = stack.folder / "env"
    _write(file, "".join(lines))
    return file


def _here(program: str) -> list[str]:
    """A program of the environment that this command runs in."""
    return [sys.executable, "-P", "-m", program]  # and of no folder that somebody works in


def _require_own_mlflow() -> None:
    """Requires what MLflow needs to ask for passwords, and to find our application.

    Raises:
      ServeError: this installation lacks it.
    """
    entries = importlib.metadata.entry_points(group="mlflow.app")
    if "dpal" not in {entry.name for entry in entries} or not importlib.util.find_spec("flask_wtf"):
        raise ServeError(
            "this installation cannot start MLflow with passwords; nothing was started, install "
            "dpal again: pip install 'dpal[server]'"
        )


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _write(file: Path, text: str) -> None:
    """Writes a file that holds a secret, in place of any that others may have opened."""
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)


# MLflow reads files at any place of which its accounts tell it, and keeps its own in the folder.
_CLOUD = ("AWS_", "AZURE_", "GOOGLE_", "GCS_", "CLOUDSDK_")
_NO_CLOUD = {
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "GOOGLE_APPLICATION_CREDENTIALS": os.devnull,
}

_AUTH = """[mlflow]
default_permission = READ
database_uri = {users}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""
