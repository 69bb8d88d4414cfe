"""Cells of a book as tasks: one is made here, several in processes side by side."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib import import_module
from pathlib import Path

import cloudpickle
from prefect.context import hydrated_context, serialize_context
from prefect.settings import PREFECT_API_URL

from dpal.book.results import CellResult, keep_result
from dpal.book.run_cell import CellOrder, run_cell
from dpal.config.runtime import RuntimeConfig
from tasks.boundary import releasing_task, task
from tasks.version_with_dvc import version_files


@releasing_task
def make_cell(order: CellOrder) -> CellResult:
    """Runs a cell, or goes on with it, and writes down what came of it."""
    result = run_cell(order)
    keep_result(order.folder, result)
    return result


@task()
def version_results(runtime: RuntimeConfig, folder: Path) -> str:
    """Adds the results of a book to DVC; returns their hash."""
    return version_files(runtime, folder)


def made_side_by_side(
    flow: str, orders: Iterable[CellOrder], *, parallel: int
) -> Iterator[tuple[CellOrder, CellResult]]:
    """Makes cells, several at a time, each as a flow run below the one that asks.

    Args:
      flow: module and name of the flow that makes one.
      orders: taken one by one, as processes are free.
      parallel: how many processes; one makes them in this process.

    Yields:
      Each order with its result, in the order in which they are done.
    """
    if parallel == 1:
        for order in orders:
            yield order, _made(flow, order)
        return
    os.environ["PREFECT_API_URL"] = _server()  # of the processes; this one has read its own
    # As Prefect sends its own: the flow run in it holds functions that pickle does not find.
    context = cloudpickle.dumps(serialize_context())
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(parallel, mp_context=spawned, initializer=_end_with_parent) as pool:
        running: dict[Future[CellResult], CellOrder] = {}
        try:
            for order in orders:
                running[pool.submit(_made_below, flow, order, context)] = order
                if len(running) == parallel:
                    yield from _finished(running)
            while running:
                yield from _finished(running)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _finished(
    running: dict[Future[CellResult], CellOrder],
) -> Iterator[tuple[CellOrder, CellResult]]:
    """Waits for one at least, and takes those that are done."""
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        yield running.pop(future), future.result()


def _made(flow: str, order: CellOrder) -> CellResult:
    module, _, name = flow.rpartition(".")
    result: CellResult = getattr(import_module(module), name)(order)
    return result


def _made_below(flow: str, order: CellOrder, context: bytes) -> CellResult:
    """In a process of its own: the cell as a flow run of the flow run that asked for it."""
    import torch

    torch.set_num_threads(1)
    with hydrated_context(cloudpickle.loads(context)):
        return _made(flow, order)


def _end_with_parent() -> None:
    """Ends this process once the one that started it is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def _server() -> str:
    """The address of Prefect's server, as this process knows it."""
    if known := PREFECT_API_URL.value():
        return str(known)
    from prefect.server.api.server import SubprocessASGIServer  # takes seconds to import

    return str(SubprocessASGIServer().api_url)
