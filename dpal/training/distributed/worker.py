"""A process that owns a share of the records and computes its part of every step.

It lives as long as the main process wants it, and no second longer than that one lives.
It draws no noise, but where it holds rows of a sharded model, on the sums of these. Nothing
it does is a release: what that is the main process writes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import nn

from dpal.data.labeled_records import LabeledSet
from dpal.errors import DpalError, ParameterError, ProcessLost
from dpal.randomness import BitSource, secure
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.clipping import Clipper
from dpal.training.distributed.messages import (
    ComputeClippedSum,
    GiveRows,
    Job,
    LoadRecords,
    Meet,
    ShardModel,
    TakeRows,
    receive_message,
    send,
)
from dpal.training.distributed.team import Sums, Team
from dpal.training.learning_rates import rate_at, set_rate
from dpal.training.train_phase import Work, own_batches

if TYPE_CHECKING:
    from dpal.training.distributed.sharded_training import ShardedTraining

Order = Job | ComputeClippedSum | ShardModel | TakeRows | GiveRows

READY = "ready"

# Within this the process that trains finds who ended.
FINDING_SECONDS: Final = 3.0
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
            if isinstance(error, ConnectionError):
                # Another rank is gone or hangs, of which the main process hears by itself. It is
                # not to hear of this end first, or it would name this one.
                link.poll(FINDING_SECONDS)
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
    receive: Callable[[], Order],
    ready: Callable[[], None],
    labeled: LabeledSet,
    sums: Sums,
    *,
    device: torch.device,
    rng: BitSource,
    watch: Callable[[], None] = _nothing,
) -> None:
    """Follows orders: phases to begin with, steps, and rows of a sharded model to keep.

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
    phase: _WholePhase | _ShardedPhase | None = None
    sharded: ShardedTraining | None = None
    while True:
        order = receive()
        if isinstance(order, ShardModel):
            sharded = _shard(order, sums)
        elif isinstance(order, Job):
            if order.model is not None:
                phase = _WholePhase(order.model.to(device), order.work, labeled, sums, rng, watch)
            elif sharded is not None:
                phase = _ShardedPhase(sharded, order.work, labeled, rng)
        elif isinstance(order, ComputeClippedSum):
            if phase is None:
                raise ParameterError("a step was asked for before any phase was begun")
            phase.step(order, ready)
        elif sharded is None:
            raise ParameterError("rows were asked for of a model that is not sharded")
        elif isinstance(order, TakeRows):
            sharded.state.scatter(order)
        else:
            sharded.state.gather(order.kind)


class _WholePhase:
    """Steps of which rank 0 has the weights and the sums."""

    def __init__(
        self,
        model: nn.Module,
        work: Work,
        labeled: LabeledSet,
        sums: Sums,
        rng: BitSource,
        watch: Callable[[], None],
    ) -> None:
        self._model, self._clipper, self._sums, self._watch = model, _clipper(work), sums, watch
        self._steps = own_batches(model, labeled, work, clipper=self._clipper, rng=rng)

    def step(self, order: ComputeClippedSum, ready: Callable[[], None]) -> None:
        self._clipper.bound = order.bound
        self._sums.share_weights(self._model, watch=self._watch)
        gradient, records, labels, sizes = next(self._steps)
        total = gradient.clipped_sum(records, labels, sizes)
        ready()
        self._sums.add_up(np.append(total, self._clipper.take_count()), watch=self._watch)


class _ShardedPhase:
    """Steps of which each rank has its rows of weights and sums."""

    def __init__(
        self, training: ShardedTraining, work: Work, labeled: LabeledSet, rng: BitSource
    ) -> None:
        self._training, self._work, self._clipper = training, work, _clipper(work)
        self._done, model = work.done, training.model
        self._steps = own_batches(
            model.model, labeled, work, clipper=self._clipper, rng=rng, layout=model
        )

    def step(self, order: ComputeClippedSum, ready: Callable[[], None]) -> None:
        work, own = self._work, self._training.state.own
        self._clipper.bound = order.bound
        gradient, records, labels, sizes = next(self._steps)
        total = gradient.clipped_sum(records, labels, sizes)
        self._training.group.total(self._clipper.take_count())
        ready()
        self._done += 1
        set_rate(
            own.optimizer,
            rate_at(work.recipe, work.spec.learning_rate, self._done, work.phase.steps),
        )
        gradient.release(total, None)
        own.optimizer.step()
        own.average.update(self._done)
        own.committee.update(self._done)


def _clipper(work: Work) -> Clipper:
    return Clipper(
        work.recipe.clipping,
        max_grad_norm=work.spec.max_grad_norm,
        precision=work.recipe.precision,
    )


def _shard(order: ShardModel, sums: Sums) -> ShardedTraining:
    if not isinstance(sums, Team):
        raise ParameterError("rows of a model go through torch.distributed, and sums are sealed")
    # No other training needs what it imports, for two seconds.
    from dpal.training.distributed.sharded_training import ShardedTraining

    return ShardedTraining(order, sums.shard_group())


def _end_with(parent: int) -> None:
    """Ends this process when the one that started it is gone, whatever it is busy with."""
    while os.getppid() == parent:
        time.sleep(_BETWEEN_LOOKS)
    os._exit(1)
