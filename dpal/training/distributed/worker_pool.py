"""DP-SGD over several processes on one machine, by the same law as in one.

Every record is owned by one rank, which decides with random bits of its own whether the
record joins a batch, and clips its gradient. Sums are added up here, at rank 0, which adds
noise once and steps. So every record still enters each batch by a coin of its own, moves
the sum by at most C, and the noise on the sum is that of the plan.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import numpy as np
import torch
from torch import Tensor, nn

from dpal import check
from dpal.data.process_share import Share
from dpal.data.records import Batch, LabeledSet
from dpal.errors import ParameterError, StorageError
from dpal.training.clipping import Clipper
from dpal.training.distributed.messages import (
    ComputeClippedSum,
    Job,
    Loader,
    LoadRecords,
    Meet,
    Team,
    copy_to,
    place,
)
from dpal.training.distributed.worker_handle import WorkerHandle, start_worker
from dpal.training.dp_sgd import PrivateGradient, Sizes
from dpal.training.train_phase import Work

PATIENCE = 600.0  # seconds that a helper may lag behind, or a vector take on its way


class WorkerPool:
    """Rank 0, the process that makes it, and helpers that live as long as the `with` block.

    One crew may train several phases, one after the other, on the records that were loaded
    at its start.
    """

    def __init__(
        self,
        load: Loader,
        *,
        processes: int,
        scratch: Path,
        device: str = "cpu",
        patience: float = PATIENCE,
    ) -> None:
        """Starts nothing yet.

        Args:
          load: loads the records of a share; called once in every helper, and by whoever
            loads rank 0's share.
          processes: this one and its helpers.
          scratch: a private folder of one crew at a time, in which the processes find each
            other. No record and no gradient is written there.
          device: of the models; cuda gives each process a GPU of its own where there are
            enough.
          patience: seconds that a helper may lag behind this process in a step.
        """
        check.at_least(1, processes=processes)
        check.positive(patience=patience)
        self.share = Share(rank=0, processes=processes)
        self._load, self._scratch, self._patience = load, scratch, patience
        self._meeting = scratch / "crew"
        self._device = torch.device(device)
        self._helpers: list[WorkerHandle] = []
        self._team: Team | None = None
        self._model: nn.Module | None = None
        self._open = False

    def __enter__(self) -> Self:
        self._threads = torch.get_num_threads()
        try:
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._meeting.unlink(missing_ok=True)  # of a crew whose main process was killed
        except OSError as error:
            raise StorageError(
                str(self._scratch), error.strerror or type(error).__name__
            ) from error
        self._open = True
        try:
            threads = max(1, self._threads // self.share.processes)
            for rank in range(1, self.share.processes):
                self._helpers.append(self._start(replace(self.share, rank=rank), threads))
            torch.set_num_threads(threads)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the helpers at once: they hold nothing that anybody needs."""
        if not self._open:
            return
        self._open = False
        for helper in self._helpers:
            helper.process.kill()
        for helper in self._helpers:
            helper.process.wait()
            helper.link.close()
        if self._team is not None:
            self._team.close()
        self._meeting.unlink(missing_ok=True)
        torch.set_num_threads(self._threads)

    def begin(self, model: nn.Module, work: Work, labeled: LabeledSet) -> None:
        """Tells the helpers which phase to train; the first time, waits for their records.

        Args:
          model: whose weights all will follow.
          work: what everyone does.
          labeled: rank 0's share.

        Raises:
          ParameterError: the records are not rank 0's share: some would have two owners, or
            none.
          DpalError: a helper cannot load its records.
          ProcessLost: a helper ended.
        """
        if labeled.share != self.share:
            raise ParameterError(
                f"rank 0 of {self.share.processes} processes was given the records of "
                f"{labeled.share}; load the share of the crew"
            )
        with self._together():
            if self._team is None:
                self._team = self._meet()
            job = Job(model=copy_to(model, torch.device("cpu")), work=work)
            for helper in self._helpers:
                helper.tell(job)
        self._model = model

    def write(
        self,
        gradient: PrivateGradient,
        clipper: Clipper,
        inputs: Batch,
        labels: Tensor,
        sizes: Sizes | None = None,
    ) -> None:
        """Sets every parameter's `grad` for one step of all ranks.

        Args:
          gradient: computes this rank's sum, and releases that of all.
          clipper: bounds every record, here and in the helpers.
          inputs: this rank's records in the batch.
          labels: of these.
          sizes: of their groups, where groups are protected.

        Raises:
          ProcessLost: a helper ended; nothing was released.
        """
        if self._team is None or self._model is None:
            raise ParameterError("a step was asked for before any phase was begun")
        with self._together():
            for helper in self._helpers:
                helper.tell(ComputeClippedSum(bound=clipper.bound))
            self._team.share_weights(self._model, watch=self._watch)
            total = gradient.clipped_sum(inputs, labels, sizes)
            for helper in self._helpers:
                helper.hear(self._patience)
            own = np.append(total, clipper.take_count())
            whole = self._team.add_up(own, watch=self._watch)
        gradient.release(whole[:-1], float(whole[-1]))

    def _start(self, share: Share, threads: int) -> WorkerHandle:
        start = LoadRecords(
            share=share,
            load=self._load,
            threads=threads,
            device=place(self._device, share),
            meeting=self._meeting,
            parent=os.getpid(),
            patience=self._patience,
        )
        return start_worker(start)

    def _meet(self) -> Team:
        for helper in self._helpers:
            helper.hear(None)  # reading records may take as long as it takes
        for helper in self._helpers:
            helper.tell(Meet())
        return Team(
            self.share,
            meeting=self._meeting,
            device=place(self._device, self.share),
            patience=self._patience,
        )

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Ends the crew when it falls apart, with the reason of whoever left it."""
        if not self._open:
            raise ParameterError("this crew has ended; make another one")
        try:
            yield
        except ConnectionError as error:
            try:
                self._blame(error)
            finally:
                self.close()
        except BaseException:
            self.close()
            raise

    def _watch(self) -> None:
        for helper in self._helpers:
            if helper.process.poll() is not None:
                helper.drain()

    def _blame(self, error: ConnectionError) -> NoReturn:
        """Raises what became of a helper that has ended or is about to."""
        for helper in self._helpers:
            with suppress(subprocess.TimeoutExpired):
                helper.process.wait(1 / len(self._helpers))
                helper.drain()
        raise self._helpers[0].lost("or another one no longer answers") from error


def in_memory(labeled: LabeledSet) -> Loader:
    """Loads shares of records that are in memory; every helper is sent all, and keeps its own."""
    return partial(_part, labeled)


def _part(labeled: LabeledSet, *, share: Share) -> LabeledSet:
    owners = labeled.owners
    rows = share.of(np.arange(len(labeled.labels)) if owners is None else owners)
    positions = torch.from_numpy(rows)
    factors = labeled.participation
    return replace(
        labeled,
        inputs=labeled.inputs[positions],
        labels=labeled.labels[positions],
        cohorts=labeled.cohorts[rows],
        participation=None if factors is None else factors[rows],
        share=share,
        owners=None if owners is None else owners[rows],
    )
