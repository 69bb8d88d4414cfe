"""Trains one phase exactly as planned."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from dpal import check
from dpal.data.labeled_records import Batch, LabeledSet
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Phase, TrainingPhase
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.training_recipe import Recipe
from dpal.randomness import BitSource
from dpal.training.backend_names import Backend
from dpal.training.clipping import Clipper
from dpal.training.dp_sgd import PrivateGradient, Sizes
from dpal.training.gradient_summation import GradientLayout
from dpal.training.learning_rates import rate_at, set_rate
from dpal.training.poisson_batches import GroupBatches, PoissonBatches, group_sizes
from dpal.training.weight_averaging import WeightAverage


@dataclass(frozen=True, kw_only=True)
class Work:
    """What every process of a training does alike, up to noise and weights.

    Attributes:
      phase: steps, rates, noise and divisor.
      spec: the clipping norm.
      physical_batch: views per backward pass.
      recipe: clipping, augmentation and precision.
      backend: what computes clipped sums.
      done: steps that the model has behind it.
      group_records: records of a group in a step, at most; where groups are protected.
    """

    phase: Phase
    spec: OptimizerSpec
    physical_batch: int
    recipe: Recipe = field(default_factory=Recipe)
    backend: Backend = Backend.BOOK_KEEPING
    done: int = 0
    group_records: int = 1


class TrainingWorkers(Protocol):
    """Processes that train together, each the owner of a share of the records.

    `dpal.training.distributed` has one.
    """

    @property
    def layout(self) -> GradientLayout | None:
        """Which part of the gradient this process releases; None is all of it."""
        ...

    def begin(self, model: nn.Module, work: Work, labeled: LabeledSet) -> None:
        """Tells the others what to do; refuses records that are not this process' share."""
        ...

    def write(
        self,
        gradient: PrivateGradient,
        clipper: Clipper,
        inputs: Batch,
        labels: Tensor,
        sizes: Sizes | None,
    ) -> None:
        """Sets the `grad` of what this process steps, with one draw of noise for each number."""
        ...


def train_dp_sgd(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    labeled: LabeledSet,
    phase: Phase,
    spec: OptimizerSpec,
    *,
    physical_batch: int,
    rng: BitSource,
    recipe: Recipe | None = None,
    backend: Backend = Backend.BOOK_KEEPING,
    clipper: Clipper | None = None,
    average: WeightAverage | None = None,
    crew: TrainingWorkers | None = None,
    done: int = 0,
    group_records: int = 1,
    before_step: Callable[[int], None] = lambda step: None,
    on_step: Callable[[int], None] = lambda step: None,
) -> None:
    """Runs the DP-SGD steps of a phase, or what is left of them, in place.

    Args:
      model: from the phase before, fresh, or from a checkpoint; of a crew that shards it, what
        computes.
      optimizer: over the model's parameters, or those that this process holds; its state carried
        over.
      labeled: all labeled records with their cohorts; with a crew, this process' share.
      phase: steps, rates, noise and divisor.
      spec: the clipping norm and the full learning rate.
      physical_batch: views per backward pass.
      rng: source of batch membership and noise; a fresh one for every attempt at a step.
      recipe: everything else about training; None is the default one.
      backend: what computes clipped sums; changes speed, nothing else.
      clipper: carries an adaptive clipping bound over from before; None starts anew.
      average: told of every step, if there is one.
      crew: processes that own the other labeled records; None where there are none.
      done: steps that the model has behind it.
      group_records: records of a group in a step, at most; where `labeled` has groups, they are
        what is sampled and clipped.
      before_step: told the number of each step before anything of it is computed; raises
        to forbid it.
      on_step: told the number of finished steps; nothing about records.

    Raises:
      ParameterError: the records are a share, and there is no crew for the rest.
      ProcessLost: one of the crew ended; the step it was in released nothing.
    """
    recipe = recipe or Recipe()
    clipper = clipper or Clipper(
        recipe.clipping, max_grad_norm=spec.max_grad_norm, precision=recipe.precision
    )
    work = Work(phase=phase, spec=spec, physical_batch=physical_batch, recipe=recipe,
                backend=backend, done=done, group_records=group_records)  # fmt: skip
    if crew is not None:
        crew.begin(model, work, labeled)
    elif labeled.share.processes > 1:
        raise ParameterError(
            f"these are the records of one of {labeled.share.processes} processes and the others "
            "are not there; train with a crew, or load all records"
        )
    layout = None if crew is None else crew.layout
    own = own_batches(model, labeled, work, clipper=clipper, rng=rng, layout=layout)
    with closing(own) as batches:
        for gradient, records, labels, sizes in batches:
            before_step(done + 1)
            set_rate(optimizer, rate_at(recipe, spec.learning_rate, done + 1, phase.steps))
            if crew is None:
                gradient.write(records, labels, sizes)
            else:
                crew.write(gradient, clipper, records, labels, sizes)
            optimizer.step()
            done += 1
            if average is not None:
                average.update(done)
            on_step(done)


def own_batches(
    model: nn.Module,
    labeled: LabeledSet,
    work: Work,
    *,
    clipper: Clipper,
    rng: BitSource,
    layout: GradientLayout | None = None,
) -> Generator[tuple[PrivateGradient, Batch, Tensor, Sizes | None]]:
    """Yields for every step that is left what computes its sum, its records and their labels.

    Where groups are protected, also how many records of each group there are.

    Args:
      model: that will be trained, or follows one that is.
      labeled: records whose inclusion is decided here, and nowhere else.
      work: steps and rates.
      clipper: bounds every record.
      rng: of this process alone.
      layout: which part of the gradient it releases; None is all of it.
    """
    model.train()
    # Dropout takes its masks from here: from no seed that anybody knows beforehand.
    torch.manual_seed(int(rng.words(1)[0]))
    phase, owners = work.phase, labeled.owners
    for part, first in remaining(phase, done=work.done):
        part_left = replace(part, steps=part.steps - first)
        gradient = PrivateGradient(
            model,
            max_grad_norm=work.spec.max_grad_norm,
            noise_multiplier=part.noise_multiplier,
            expected_batch_size=part.expected_batch_size,
            physical_batch=work.physical_batch,
            rng=rng,
            recipe=work.recipe,
            backend=work.backend,
            clipper=clipper,
            layout=layout,
        )
        try:
            drawn = _batches(labeled, part_left, work).draw(rng=rng)
            part_size = max(1, work.physical_batch // work.recipe.augmentation.multiplicity)
            for rows, records in labeled.batches(drawn, part=part_size):
                sizes = None if owners is None else group_sizes(owners[rows])
                yield gradient, records, labeled.labels[torch.from_numpy(rows)], sizes
        finally:
            gradient.close()


def _batches(labeled: LabeledSet, part: TrainingPhase, work: Work) -> PoissonBatches | GroupBatches:
    phase, cohorts = work.phase.index, labeled.cohorts
    if labeled.owners is None:
        return PoissonBatches.of_part(part, phase, cohorts, labeled.participation)
    return GroupBatches.of_part(
        part,
        phase,
        cohorts,
        labeled.owners,
        most=work.group_records,
        participation=labeled.participation,
    )


def remaining(phase: Phase, *, done: int) -> Iterator[tuple[TrainingPhase, int]]:
    """Yields the parts of a phase that have steps left, and how many of each are done.

    Args:
      phase: whose parts run one after the other.
      done: steps made, from 0 to all.

    Raises:
      ParameterError: the phase has no such step.
    """
    check.within(0, phase.steps, done=done)
    for part in phase.parts:
        here = min(done, part.steps)
        done -= here
        if here < part.steps:
            yield part, here


def position(phase: Phase, *, done: int) -> dict[str, int]:
    """Where a phase stands: the number of the part that is next, and its finished steps."""
    left = list(remaining(phase, done=done))
    return {"part": len(phase.parts) - len(left), "steps": left[0][1] if left else 0}
