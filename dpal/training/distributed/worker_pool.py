"""DP-SGD over several processes, of one machine or of several, by the same law as in one.

Every record is owned by one rank, which decides with random bits of its own whether the
record joins a batch, and clips its gradient. Sums are added up here, at rank 0, which adds
noise once and steps. So every record still enters each batch by a coin of its own, moves
the sum by at most C, and the noise on the sum is that of the plan.

Where a model is sharded, each rank gets its rows of the sum, adds noise to these, and steps them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

import numpy as np
import torch
from torch import Tensor, nn

from dpal import check
from dpal.data.labeled_records import Batch, LabeledSet
from dpal.data.process_share import Share
from dpal.errors import DpalError, ParameterError, ProcessLost
from dpal.files.atomic_writes import writing
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Recipe
from dpal.training.arithmetic import exact_arithmetic
from dpal.training.backend_names import Backend
from dpal.training.clipping import Clipper
from dpal.training.distributed.messages import (
    ComputeClippedSum,
    GiveRows,
    Job,
    Loader,
    LoadRecords,
    Meet,
    ShardModel,
    TakeRows,
    copy_to,
)
from dpal.training.distributed.remote_handle import RemoteHandle, SealedSums
from dpal.training.distributed.remote_messages import load_order
from dpal.training.distributed.rendezvous import RemoteRanks, Rendezvous
from dpal.training.distributed.team import Meeting, Sums, Team, network_store, own_gpus, place
from dpal.training.distributed.worker_handle import WorkerHandle, start_worker
from dpal.training.dp_sgd import PrivateGradient, Sizes
from dpal.training.gradient_summation import GradientLayout
from dpal.training.train_phase import Work

if TYPE_CHECKING:
    from dpal.training.distributed.sharded_checkpoints import LeadingState
    from dpal.training.distributed.sharded_training import ShardedTraining

PATIENCE = 600.0  # seconds that a helper may lag behind, or a vector take on its way


class WorkerPool:
    """Rank 0, the process that makes it, and helpers that live as long as the `with` block.

    Helpers of other machines are started there, and come to this one (`remote_worker`).

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
        remote: RemoteRanks | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
          load: loads the records of a share; called once in every helper, and by whoever
            loads rank 0's share.
          processes: this one and its helpers on this machine.
          scratch: a private folder of one crew at a time, in which the processes find each
            other. No record and no gradient is written there.
          device: of the models; cuda gives each process a GPU of its own where there are
            enough.
          patience: seconds that a helper may lag behind this process in a step.
          remote: helpers on other machines; None where there are none.
        """
        check.at_least(1, processes=processes)
        check.positive(patience=patience)
        others = 0 if remote is None else remote.number
        self.share = Share(rank=0, processes=processes + others)
        self._processes, self._remote = processes, remote
        self._load, self._scratch, self._patience = load, scratch, patience
        self._meeting = scratch / "crew"
        self._device = torch.device(device)
        self._helpers: list[WorkerHandle] = []
        self._elsewhere: list[RemoteHandle] = []
        self._rendezvous: Rendezvous | None = None
        self._sums: Sums | None = None
        self._model: nn.Module | None = None
        self._sharded: ShardedTraining | None = None
        self._open = False

    def __enter__(self) -> Self:
        self._threads = torch.get_num_threads()
        with writing(self._scratch):
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._meeting.unlink(missing_ok=True)  # of a crew whose main process was killed
        self._open = True
        try:
            if self._remote is not None:
                self._rendezvous = Rendezvous(self._remote)
            threads = max(1, self._threads // self._processes)
            for rank in range(1, self._processes):
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
        if kind is None and self._open:
            for helper in self._elsewhere:
                helper.dismiss()
        self.close()

    def close(self) -> None:
        """Ends the helpers at once: they hold nothing that anybody needs."""
        if not self._open:
            return
        self._open = False
        for helper in self._everyone:
            helper.end()
        if self._rendezvous is not None:
            self._rendezvous.close()
        if self._sums is not None:
            self._sums.close()
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
          ProcessLost: a helper ended, or did not come.
        """
        if labeled.share != self.share:
            raise ParameterError(
                f"rank 0 of {self.share.processes} processes was given the records of "
                f"{labeled.share}; load the share of the crew"
            )
        with self._together():
            if self._sums is None:
                self._sums = self._meet()
            given = None if self._sharded else copy_to(model, torch.device("cpu"))
            for helper in self._everyone:
                helper.tell(Job(model=given, work=work))
        self._model = model

    @property
    def layout(self) -> GradientLayout | None:
        """Which part of the gradient this process releases; None is all of it."""
        return None if self._sharded is None else self._sharded.model

    def shard(
        self,
        model: nn.Module,
        *,
        spec: OptimizerSpec,
        recipe: Recipe,
        steps: int,
        backend: Backend = Backend.BOOK_KEEPING,
        committee: bool = False,
    ) -> LeadingState:
        """Gives every rank its rows of a model; the first time, waits for the helpers.

        Args:
          model: with its weights, of which this process keeps its rows.
          spec: its optimizer.
          recipe: clipping and averaging.
          steps: of the phase that `begin` begins.
          backend: what is to compute clipped sums.
          committee: whether the next selection asks one.

        Raises:
          ParameterError: such a model cannot be sharded. It is as it was.
          DpalError: a helper cannot load its records.
          ProcessLost: a helper ended, or did not come.
        """
        # It takes two seconds to import, and no other training needs it.
        from dpal.training.distributed.sharded_checkpoints import LeadingState
        from dpal.training.distributed.sharded_model import require_shardable, take_weights
        from dpal.training.distributed.sharded_training import ShardedTraining

        require_shardable(model, backend=backend, optimizer=spec.name)
        with self._together():
            if self._sums is None:
                self._sums = self._meet()
            if not isinstance(self._sums, Team) or self._elsewhere:
                raise ParameterError(
                    "a model can be sharded over processes of one machine, and other machines help "
                    "here; set runtime.model_layout replicated, or leave runtime.helpers out"
                )
            if self._device.type == "cuda" and not own_gpus(self._device, self._processes):
                raise ParameterError(
                    f"a sharded model needs {self._processes} GPUs, one a process, and here are "
                    "fewer; set runtime.processes lower, or runtime.device cpu"
                )
            if self._device.type == "cuda":  # as in every helper; FSDP asks torch for it
                torch.cuda.set_device(self._place(self.share))
                exact_arithmetic()
            group = self._sums.shard_group()
            whole = take_weights(model.cpu())
            order = ShardModel(
                model=model, spec=spec, recipe=recipe, steps=steps, committee=committee
            )
            for helper in self._helpers:
                helper.tell(order)
            self._sharded = ShardedTraining(order, group, whole)
        return LeadingState(self._sharded, self._telling)

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
        if self._sums is None or self._model is None:
            raise ParameterError("a step was asked for before any phase was begun")
        if self._rendezvous is not None:
            self._rendezvous.tell()  # who was refused meanwhile
        if self._sharded is not None:
            with self._telling(ComputeClippedSum(bound=clipper.bound)):
                total = gradient.clipped_sum(inputs, labels, sizes)
                count = self._sharded.group.total(clipper.take_count())
                for helper in self._everyone:
                    helper.hear(self._patience)
            gradient.release(total, count)
            return
        with self._together():
            for each in self._everyone:
                each.tell(ComputeClippedSum(bound=clipper.bound))
            self._sums.share_weights(self._model, watch=self._watch)
            total = gradient.clipped_sum(inputs, labels, sizes)
            for helper in self._everyone:
                helper.hear(self._patience)
            own = np.append(total, clipper.take_count())
            whole = self._sums.add_up(own, watch=self._watch)
        gradient.release(whole[:-1], float(whole[-1]))

    @contextmanager
    def _telling(self, order: ComputeClippedSum | TakeRows | GiveRows) -> Iterator[None]:
        """Tells all helpers of this machine what everybody does now."""
        with self._together():
            for helper in self._helpers:
                helper.tell(order)
            yield

    @property
    def _everyone(self) -> list[WorkerHandle | RemoteHandle]:
        return [*self._helpers, *self._elsewhere]

    def _start(self, share: Share, threads: int) -> WorkerHandle:
        start = LoadRecords(
            share=share,
            load=self._load,
            threads=threads,
            device=self._place(share),
            parent=os.getpid(),
            patience=self._patience,
        )
        return start_worker(start)

    def _place(self, share: Share) -> torch.device:
        """Ranks of this machine share its devices; those of others have their own."""
        return place(self._device, Share(rank=share.rank, processes=self._processes))

    def _meet(self) -> Sums:
        if self._remote is not None and self._rendezvous is not None:
            first = replace(self.share, rank=self._processes)
            self._elsewhere = self._rendezvous.await_all(first)
            for helper in self._elsewhere:
                said, rows = self._remote.order(helper.share)
                helper.give({**said, **load_order(helper.share, self._patience)}, rows)
        for each in self._everyone:
            each.hear(None)  # reading records may take as long as it takes
        here = Meeting(
            ranks=self._processes,
            file=self._meeting,
            own_gpus=own_gpus(self._device, self._processes),
        )
        if self._remote is None:
            return self._gather(here, self._helpers)
        if not self._remote.private:
            together = self._gather(here, self._helpers) if self._helpers else None
            sealed = Meeting(ranks=self.share.processes)
            for helper in self._elsewhere:
                helper.tell(Meet(meeting=sealed))
            return SealedSums(together, self._elsewhere, patience=self._patience)
        host = self._elsewhere[0].link.own_host
        store, everyone = network_store(host, Meeting(ranks=self.share.processes))
        return self._gather(everyone, self._everyone, store)

    def _gather(
        self,
        meeting: Meeting,
        others: Sequence[WorkerHandle | RemoteHandle],
        store: object | None = None,
    ) -> Team:
        for helper in others:
            helper.tell(Meet(meeting=meeting))
        device = self._place(self.share)
        return Team(0, meeting, device=device, patience=self._patience, store=store)

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
        except RuntimeError as error:
            # What shards a model waits for the others by itself, and fails in its own words.
            try:
                self._await_end()
                if self._sharded is not None and _is_of_connection(error):
                    self._blame(error)
            finally:
                self.close()
            raise
        except BaseException:
            self.close()
            raise

    def _watch(self) -> None:
        for helper in self._everyone:
            helper.look()

    def _blame(self, error: Exception) -> NoReturn:
        """Raises what became of a helper that has ended or is about to."""
        self._await_end()
        raise self._everyone[0].lost("or another one no longer answers") from error

    def _await_end(self) -> None:
        """Raises what became of a helper, if one ends within a second; of several, the cause."""
        everyone, reasons = self._everyone, list[DpalError]()
        for helper in everyone:
            try:
                helper.await_end(1 / len(everyone))
            except DpalError as error:
                reasons.append(error)
        if reasons:
            raise min(reasons, key=_remoteness)


def _is_of_connection(error: RuntimeError) -> bool:
    said = str(error).lower()
    return "gloo" in said or "nccl" in said


def _remoteness(error: DpalError) -> int:
    """How far an error is from the cause: who lost another rank fails, too, as torch has it."""
    if not isinstance(error, ProcessLost):
        return 0
    victims = ("RuntimeError", "ConnectionError", "DistBackendError")
    return 2 if any(name in error.how for name in victims) else 1


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
