"""`dpal serve`: Prefect, MLflow, workers and Label Studio on this machine, until Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from dpal.errors import ConfigError
from dpal.reports.report import Table
from flows.cli.terminal import how_to_open_mlflow, out, print_table

if TYPE_CHECKING:
    from dpal.config.runtime import RunConfig
    from dpal.config.watch import WatchConfig
    from flows.ops.stack_services import Stack
    from flows.ops.supervisor import Supervisor

EXAMPLE = (
    "Examples: dpal serve clinic.yaml | dpal serve clinic.yaml --label-studio | "
    "dpal serve --host 0.0.0.0 --postgres postgresql://dpal@db.example.org"
)
_LOCAL = "127.0.0.1"


def serve(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="[FILE.yaml]...", help="Runs, watches and retrainings to deploy as well."
        ),
    ] = [],  # noqa: B006
    folder: Annotated[Path, typer.Option(help="Data, logs and passwords of the servers.")] = Path(
        "stack"
    ),
    ports: Annotated[
        list[str],
        typer.Option(
            "--port",
            metavar="SERVER=N",
            help="Usually prefect=4200, mlflow=5000, label-studio=8080. Repeatable.",
        ),
    ] = [],  # noqa: B006
    workers: Annotated[
        int, typer.Option(min=1, help="Workers for campaigns; one more is for training.")
    ] = 1,
    host: Annotated[
        str, typer.Option(help="Interface to listen on; 0.0.0.0 lets other machines in.")
    ] = _LOCAL,
    name: Annotated[
        str | None, typer.Option(help="How others reach this machine; usually its host name.")
    ] = None,
    origins: Annotated[
        list[str],
        typer.Option(
            "--origin",
            metavar="SERVER=URL",
            help="Where a reverse proxy shows a server's pages, such as "
            "prefect=https://runs.example.org. Repeatable.",
        ),
    ] = [],  # noqa: B006
    listen: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port that Label Studio calls, to have labels noticed at once."
        ),
    ] = None,
    auth: Annotated[
        bool, typer.Option("--auth", hidden=True, help="As always: of earlier versions.")
    ] = True,
    postgres: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="One Postgres for everything, such as postgresql://me@db."
        ),
    ] = None,
    label_studio: Annotated[bool, typer.Option("--label-studio", help="Start it, too.")] = False,
) -> None:
    """Run Prefect, MLflow and workers on this machine, and deploy everything. Ctrl-C ends it.

    All of it asks for passwords, which are made at the first start and stand in the folder's
    `secrets`. Runs from Prefect may use what the folder's allow.yaml has: at the first start,
    what the configurations here need.
    """
    shown_at = _origins(origins)
    # At once: what follows takes seconds to import.
    out.print(f"data, logs and passwords are kept in {folder.absolute()}", markup=False)
    if files:
        out.print(f"reading {', '.join(map(str, files))} ...", markup=False)
    from flows.cli.any_settings import load_any
    from flows.ops.databases import make_databases
    from flows.ops.stack_services import Stack, find_label_studio, require_free
    from flows.ops.supervisor import Supervisor

    configs = [load_any(file) for file in files]
    stack = Stack(
        folder=folder.absolute(),
        host=host,
        name=name or (_LOCAL if host == _LOCAL else socket.gethostname()),
        ports=_ports(ports),
        workers=workers,
        postgres=postgres,
        label_studio=find_label_studio() if label_studio else None,
        listen=listen,
        origins=shown_at,
    )
    with _alone(folder):
        crew = Supervisor(
            stack.folder, lambda text: out.print(f"{time.strftime('%H:%M:%S')}  {text}")
        )
        crew.stop_left_over()
        require_free(stack)
        if postgres and (made := make_databases(postgres)):
            out.print(f"made the databases {', '.join(f'dpal_{database}' for database in made)}")
        with _until_told_to_end():
            try:
                _start(stack, crew, files, configs)
                while True:
                    crew.look()
                    time.sleep(1)
            except KeyboardInterrupt:
                out.print("stopping; trainings finish their step first ...")
            finally:
                crew.stop()
    out.print("all stopped; the same command goes on where this one ended")


def _start(
    stack: Stack, crew: Supervisor, files: list[Path], configs: list[RunConfig | WatchConfig]
) -> None:
    from flows.ops.mlflow_accounts import make_accounts
    from flows.ops.stack_services import (
        desk_service,
        label_studio_service,
        mlflow_service,
        prefect_service,
        worker_services,
        write_environment,
    )
    from tasks.tracking.server_app import ADMIN

    out.print(f"starting; logs are in {crew.logs}")
    servers = [prefect_service(stack), mlflow_service(stack)]
    if stack.label_studio:
        out.print("Label Studio takes minutes the first time ...")
        servers.append(label_studio_service(stack))
    crew.start(*servers)
    passwords = stack.mlflow_passwords
    for change in make_accounts(stack.url("mlflow"), passwords.pop(ADMIN), passwords):
        out.print(change)
    _allow(stack.allow_file, configs)
    told = write_environment(stack)
    out.print("deploying flows, work pools and the automation ...")
    _deploy(stack, crew.logs / "deploy.log", files)
    crew.start(*worker_services(stack), desk_service(stack))
    columns = ("what", "where", "account", "password")
    print_table(Table("Running", columns, tuple(stack.logins())))
    if stack.ledger:
        out.print(f"runtime.ledger: {stack.ledger}", markup=False)
    out.print(f"MLflow's runs: {how_to_open_mlflow(stack.url('mlflow'))}", markup=False)
    out.print(f"a password stands in its file: cat {stack.secrets.file('prefect')}")
    out.print(f"in another terminal, first: source {told}")
    out.print("then: dpal doctor, or start a campaign on Prefect's page. Ctrl-C here stops all.")


def _allow(file: Path, configs: list[RunConfig | WatchConfig]) -> None:
    """Writes a first list of what runs from Prefect may use; a list that is there stays."""
    from flows.cli.allow import extended_for, settings_to_allow
    from tasks.allow_list import read_allow_list, write_allow_list

    allowed = read_allow_list(file)
    if not file.exists() and configs:
        allowed = extended_for(allowed, configs)
        write_allow_list(file, allowed)
        out.print(f"runs from Prefect may use what these configurations need: {file}")
    refused = (allowed.refused(settings_to_allow([config])) for config in configs)
    if missing := {setting.key for settings in refused for setting in settings}:
        out.print(
            f"{file} does not allow all of these configurations ({', '.join(sorted(missing))}), so "
            f"their runs are refused until: dpal allow --to {file} FILE.yaml"
        )
    elif allowed.is_empty:
        out.print(f"runs from Prefect may use nothing yet; allow it: dpal allow --to {file} FILE")


def _deploy(stack: Stack, log: Path, files: list[Path]) -> None:
    """Deploys as `dpal deploy` does, in a process that knows the new server."""
    from flows.ops.supervisor import COMMAND, ServeError

    command = [sys.executable, "-P", "-m", COMMAND, "deploy", *map(str, files)]
    environment = {**os.environ, **stack.environment, "PREFECT_HOME": str(stack.folder / "worker")}
    environment["PREFECT_CLIENT_MAX_RETRIES"] = "8"  # the server is busy with its first start
    with log.open("wb") as file:
        ended = subprocess.run(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    if ended.returncode:
        said = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
        raise ServeError(f"deploying failed: {said[-1].removeprefix('dpal: ')}")


def _origins(texts: list[str]) -> dict[str, str]:
    origins = {}
    for text in texts:
        server, _, url = text.partition("=")
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and parts.netloc and not parts.path.strip("/")
        if server not in ("prefect", "mlflow") or not plain or "@" in parts.netloc:
            raise ConfigError(
                "--origin takes prefect=URL or mlflow=URL without a path, such as "
                f"prefect=https://runs.example.org, not {text!r}"
            )
        origins[server] = f"{parts.scheme}://{parts.netloc.lower()}"
    return origins


def _ports(texts: list[str]) -> dict[str, int]:
    from flows.ops.stack_services import PORTS

    ports = dict(PORTS)
    for text in texts:
        server, _, number = text.partition("=")
        if server not in ports or not number.isdecimal() or not 0 < int(number) < 65536:
            servers = ", ".join(ports)
            raise ConfigError(
                f"--port takes SERVER=N, such as prefect=4201 (servers: {servers}), not {text!r}"
            )
        ports[server] = int(number)
    return ports


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One serve for each folder: two would give each other's databases two servers."""
    from flows.ops.stack_secrets import require_own_folder
    from flows.ops.supervisor import ServeError

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    require_own_folder(folder)
    descriptor = os.open(folder / "serve.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ServeError(
            f"another dpal serve runs on {folder}; stop that one, or choose another --folder"
        ) from error
    else:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _until_told_to_end() -> Iterator[None]:
    """Turns SIGTERM, by which services are stopped, into what Ctrl-C does; once."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)  # stopping in order takes a while
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
