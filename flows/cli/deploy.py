"""`dpal deploy`: pools, deployments, schedules and automations on a Prefect server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpal.errors import ConfigError
from dpal.reports.report import Table
from dpal.runs.kinds import KINDS
from flows.cli.terminal import err, out, print_table

if TYPE_CHECKING:
    from flows.ops.deployments import Deployment, WorkPool
    from flows.ops.work_pools import Change

EXAMPLE = (
    "Examples: dpal deploy | dpal deploy clinic.yaml watch.yaml | "
    "dpal deploy --pool gpu=docker --limit gpu=2 | dpal deploy --remove"
)
_KINDS = ("what", "name", "done", "about")

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="[FILE.yaml]...",
        help="Configurations: a campaign becomes campaign/NAME, a watch watch/NAME, a "
        "retraining capc/NAME.",
    ),
]
Pools = Annotated[
    list[str],
    typer.Option(
        "--pool",
        metavar="NAME[=TYPE]",
        help="A pool, by its type: process (usual), docker, kubernetes. Those beside "
        "`campaigns` train. Repeatable.",
    ),
]
Limits = Annotated[
    list[str],
    typer.Option(
        "--limit", metavar="NAME=N", help="Runs at once; usually campaigns=4, gpu=1. Repeatable."
    ),
]
Workdirs = Annotated[
    list[str],
    typer.Option(
        "--workdir",
        metavar="[POOL=]DIR",
        help="Folder in which runs work, on the workers' machines; usually this one (/work in "
        "containers). Repeatable.",
    ),
]
Notify = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE/NAME",
        help="Notification block of the Prefect server, such as slack-webhook/ops: tells people "
        "when a run crashes or fails.",
    ),
]
Remove = Annotated[
    bool,
    typer.Option(
        "--remove", help="Take away what was deployed; with FILE.yaml, no more than theirs."
    ),
]


def deploy(
    files: Files = [],  # noqa: B006
    pools: Pools = [],  # noqa: B006
    limits: Limits = [],  # noqa: B006
    workdirs: Workdirs = [],  # noqa: B006
    notify: Notify = None,
    remove: Remove = False,
) -> None:
    """Make a Prefect server know of dpal: work pools, deployments, schedules, automations.

    The server is the one of PREFECT_API_URL. Doing it twice changes nothing.
    """
    from flows.ops.deployments import CAMPAIGN, from_file, pools_of, worker_command

    own = [from_file(file) for file in files]
    kinds = dict(_pool_of(text) for text in pools)
    wanted = pools_of(kinds, dict(_limit_of(text) for text in limits), own)
    err.print("asking Prefect ...", style="dim")
    changes = _remove(own) if remove else make(own, wanted, _folders(workdirs), notify)
    rows = tuple((change.kind, change.name, change.done.value, change.about) for change in changes)
    print_table(Table("On the Prefect server", _KINDS, rows))
    if remove:
        return
    for pool in wanted:
        out.print(f"on a machine that works for it: {worker_command(pool.name, pool.type)}")
    for deployment in own or [CAMPAIGN]:
        by = "dpal run --on" if deployment.flow in KINDS else "prefect deployment run"
        out.print(f"start one: on Prefect's page, or {by} {deployment.full_name}")


def make(
    own: Sequence[Deployment],
    pools: Sequence[WorkPool],
    folders: dict[str, Path],
    notify: str | None = None,
) -> list[Change]:
    """Deploys every flow, and what files describe, each in its pool's folder.

    Raises:
      DeployError: the server does not answer, or something stands in the way.
    """
    from flows.ops.deploy import set_up
    from flows.ops.deployments import folder_for, usual
    from flows.ops.prefect_connection import prefect_server

    here = {pool.name: folder_for(pool, folders, Path.cwd()) for pool in pools}
    placed = [
        replace(deployment, folder=here[deployment.pool]) for deployment in [*usual(pools), *own]
    ]
    with prefect_server() as client:
        return set_up(client, pools, placed, notify)


def _remove(own: Sequence[Deployment]) -> list[Change]:
    from flows.ops.deploy import take_down
    from flows.ops.prefect_connection import prefect_server

    with prefect_server() as client:
        return take_down(client, own)


def _pool_of(text: str) -> tuple[str, str]:
    name, _, kind = text.partition("=")
    if not name:
        raise ConfigError(f"--pool takes NAME or NAME=TYPE, such as gpu=docker, not {text!r}")
    return name, kind or "process"


def _limit_of(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not name or not number.isdecimal() or int(number) < 1:
        raise ConfigError(f"--limit takes NAME=N, such as gpu=2, not {text!r}")
    return name, int(number)


def _folders(texts: Sequence[str]) -> dict[str, Path]:
    """Folders by pool; "" stands for all pools."""
    folders = {}
    for text in texts:
        pool, equals, folder = text.rpartition("=")
        path = Path(folder)
        if not path.is_absolute() and equals:
            raise ConfigError(f"--workdir {text}: a folder on another machine starts with /")
        folders[pool] = path.absolute()
    return folders
