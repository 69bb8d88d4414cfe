"""A process that owns a share of the records and computes its part of every step.

It lives as long as the main process wants it, and no second longer than that one lives.
It never draws noise, and nothing it does is a release.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from dpal.data.records import LabeledSet
from dpal.errors import DpalError, ParameterError, ProcessLost
from dpal.randomness import BitSource, secure
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.clipping import Clipper
from dpal.training.distributed.messages import (
    ComputeClippedSum,
    Job,
    LoadRecords,
    Meet,
    receive_message,
    send,
)
from dpal.training.distributed.team import Sums, Team
from dpal.training.train_phase import own_batches

READY = "ready"

_BETWEEN_LOOKS = 0.5  # seconds


def run_worker(descriptor: int) -> None:
    """Obeys the main process until it hangs up.

    Args:
      descriptor: of the socket to it.
    """
    link = Connection(descriptor)
    # The main process hung up: nobody is left to be told.
    with suppress(EOFError, OSError):
        start: LoadRecords = receive_message(link)
        threading.Thread(target=_end_with, args=(start.parent,), daemon=True).start()
        try:
            _work(link, start)
        except EOFError:
            raise
        except DpalError as error:
            send(link, error)
        except Exception as error:
            # What it says may come from a record, and this message is shown to people.
            how = f"failed ({type(error).__name__}; runtime.processes 1 may tell more)"
            send(link, ProcessLost(start.share.rank, start.share.processes, how))


def _work(link: Connection, start: LoadRecords) -> None:
    torch.set_num_threads(start.threads)
    if start.device.type == "cuda":
        torch.cuda.set_device(start.device)
        exact_arithmetic()
    with start.load(share=start.share) as labeled:
        if labeled.share != start.share:
            raise ParameterError(f"records of {labeled.share} were loaded, not of {start.share}")
        send(link, READY)
        meet: Meet = receive_message(link)
        team = Team(start.share.rank, meet.meeting, device=start.device, patience=start.patience)
        handle_messages(
            partial(receive_message, link),
            partial(send, link, READY),
            labeled,
            team,
            device=start.device,
            rng=secure(),
        )


def _nothing() -> None:
    """Whoever waits here is ended from outside."""


def handle_messages(
    receive: Callable[[], Job | ComputeClippedSum],
    ready: Callable[[], None],
    labeled: LabeledSet,
    sums: Sums,
    *,
    device: torch.device,
    rng: BitSource,
    watch: Callable[[], None] = _nothing,
) -> None:
    """Follows orders: phases to begin with, and steps.

    Args:
      receive: waits for the next order of the main process.
      ready: tells it that a clipped sum is there.
      labeled: the share's records.
      sums: what all ranks give each other.
      device: to compute on.
      rng: of this process alone: decides which of its records join a batch.
      watch: called while waiting for others; raises when that makes no sense any more.

    Raises:
      EOFError: the main process hung up.
    """
    steps: Generator[Any] | None = None
    while True:
        order = receive()
        if isinstance(order, Job):
            model, work = order.model.to(device), order.work
            clipper = Clipper(
                work.recipe.clipping,
                max_grad_norm=work.spec.max_grad_norm,
                precision=work.recipe.precision,
            )
            steps = own_batches(model, labeled, work, clipper=clipper, rng=rng)
            continue
        if steps is None:
            raise ParameterError("a step was asked for before any phase was begun")
        clipper.bound = order.bound
        sums.share_weights(model, watch=watch)
        gradient, records, labels, sizes = next(steps)
        total = gradient.clipped_sum(records, labels, sizes)
        ready()
        sums.add_up(np.append(total, clipper.take_count()), watch=watch)


def _end_with(parent: int) -> None:
    """Ends this process when the one that started it is gone, whatever it is busy with."""
    while os.getppid() == parent:
        time.sleep(_BETWEEN_LOOKS)
    os._exit(1)
