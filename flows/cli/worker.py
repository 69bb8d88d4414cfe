"""`dpal worker`: works for a pool of the Prefect server, within the list of the data's owner."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.terminal import out

if TYPE_CHECKING:
    from flows.ops.restricted_worker import OwnFlowWorker

_ASK_SECONDS = "1"  # Prefect's own 10 would be most of what a small training waits for
_ENDING = (signal.SIGINT, signal.SIGTERM)
EXAMPLE = "Example: dpal allow clinic.yaml && dpal worker gpu"


def worker(
    pool: Annotated[str, typer.Argument(help="Work pool of type process.")],
    name: Annotated[
        str | None, typer.Option(help="Of this worker on Prefect's page; a random one if left out.")
    ] = None,
    standby: Annotated[
        int | None,
        typer.Option(
            min=0,
            envvar="DPAL_STANDBY",
            show_default="1, and 0 for the pool campaigns",
            help="Processes that have everything imported and wait for a training each.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            envvar="DPAL_DEVICE",
            help="Of the trainings here: auto (cuda where there is one), cpu, cuda, cuda:1; "
            "as their settings say if left out.",
        ),
    ] = None,
) -> None:
    """Work for a pool: run dpal's flows, and only with what this machine's list allows.

    What a run may read and where results may go stands in that list (dpal allow).
    """
    # As Prefect has it: a worker outlives a server that is busy. A person at a terminal is told.
    os.environ["PREFECT_CLIENT_MAX_RETRIES"] = "5"
    os.environ.setdefault("PREFECT_WORKER_QUERY_SECONDS", _ASK_SECONDS)
    import asyncio

    from flows.ops.deployments import CAMPAIGNS
    from flows.ops.restricted_worker import OwnFlowWorker
    from tasks.allow_list import allow_file, read_allow_list
    from tasks.training_pool.worker_device import DEVICE, require_device_name

    _require_process_pool(pool)
    if device:
        require_device_name(device)
        os.environ[DEVICE] = device
    if read_allow_list(file := allow_file()).is_empty:
        out.print(f"{file} allows nothing yet: runs are refused until dpal allow FILE.yaml")
    if standby is None:
        standby = 0 if pool == CAMPAIGNS else 1
    working = OwnFlowWorker(pool, standby=standby, name=name, create_pool_if_not_found=False)
    try:
        asyncio.run(_work_until_told_to_end(working))
    except (KeyboardInterrupt, asyncio.CancelledError):
        out.print("worker stopped")


async def _work_until_told_to_end(working: OwnFlowWorker) -> None:
    """Works until the first signal to end, and tidies up then; a second one ends it at once.

    Not by Prefect's own handlers: they raise wherever the program is, and in the middle of a group
    of tasks that is a traceback. Set here, they are also heard by what a script starts beside
    itself (`dpal worker gpu &`), which ignores SIGINT.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs is of a task

    def end() -> None:
        out.print("ending; once more ends it without tidying up")
        for each in _ENDING:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        task.cancel()

    for each in _ENDING:
        loop.add_signal_handler(each, end)
    await working.start(printer=out.print)


def _require_process_pool(name: str) -> None:
    """Requires a pool whose runs are processes of its workers.

    Raises:
      DeployError: there is none of this name, or it starts containers.
    """
    from prefect.exceptions import ObjectNotFound

    from flows.ops.prefect_connection import DeployError, prefect_server

    with prefect_server() as client:
        try:
            pool = client.read_work_pool(name)
        except ObjectNotFound as error:
            raise DeployError(
                f"there is no work pool {name} on the Prefect server; make it with: dpal deploy"
            ) from error
    if pool.type != "process":
        raise DeployError(
            f"runs of work pool {name} are started by {pool.type}, not as processes here; use "
            f"Prefect's worker: prefect worker start --pool {name}"
        )
