"""What a plan can be expected to reach: it is rehearsed on public records, before anything is paid.

Nothing private is read, and nothing is spent: what comes out follows from the plan and from public
records. All that is drawn repeats, so that nobody asks again until the answer is a better one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from dpal import check
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Acquisition
from dpal.simulation.paired_comparison import estimate_mean
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, RehearsedPhase, rehearse
from dpal.simulation.scaled_plan import scaled_plan
from dpal.simulation.seeded_bits import SeededBits
from dpal.training.gain_over_majority import model_worth
from dpal.training.metrics import headline_standard_error
from dpal.training.predictions import probabilities

JUDGE_UNUSED = Acquisition.LEAST_CONFIDENCE  # judges random selections, which nobody reads here
_NORMAL = 1.96  # half of a 95 % interval, in standard errors


@dataclass(frozen=True, kw_only=True)
class ExpectedPhase:
    """What a plan is expected to have reached after one phase.

    Attributes:
      phase: its number.
      labels: that the plan has bought by then.
      rehearsed_labels: that a rehearsal bought by then, at most; fewer of few public records.
      mean: of the headline figure in [0, 1], over rehearsals.
      half_width: of an interval around it that has 95 % of such means, at least about: both what
        differs between rehearsals and which records judged them.
    """

    phase: int
    labels: int
    rehearsed_labels: int
    mean: float
    half_width: float


@dataclass(frozen=True, kw_only=True)
class ExpectedFigures:
    """What rehearsals of a plan on public records came to. An expectation, no promise.

    Attributes:
      figure: the headline figure's name: accuracy or micro_f1.
      phases: after each phase.
      majority: the same figure of always giving the most frequent answer.
      rehearsals: how many there were.
      pool_records: public records that one rehearsal may buy labels of.
      judged_records: others, by which it is judged.
      is_smaller: whether rehearsals had fewer labels than the plan, as public records are few.
    """

    figure: str
    phases: tuple[ExpectedPhase, ...]
    majority: float
    rehearsals: int
    pool_records: int
    judged_records: int
    is_smaller: bool

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def expected_figures(
    plan: Plan,
    data: Sequence[PublicData],
    *,
    physical_batch: int,
    on_rehearsal: Callable[[int], None] = lambda run: None,
) -> ExpectedFigures:
    """Rehearses a plan on public records, made as small as these need.

    Args:
      plan: of a campaign that begins with its private pool; every record is by itself.
      data: public records of each rehearsal, at least two: see `split_in_halves`.
      physical_batch: records per backward pass.
      on_rehearsal: told of each that is done, with its number.

    Raises:
      ParameterError: there are fewer than two rehearsals, or public records are too few.

    Source:
      Interval: Student's t over rehearsals, and 1.96 times the standard error over the records
      that judge one, added as squares. Rehearsals judge partly by the same records, which the
      first alone would not count; the second is of one rehearsal, and so rather too wide.
    """
    check.at_least(2, rehearsals=len(data))
    smaller = scaled_plan(plan, min(len(public.labels) for public in data))
    judged = [
        _judged(smaller, public, run, physical_batch, on_rehearsal)
        for run, public in enumerate(data)
    ]
    phases = []
    bought = 0
    for phase in plan.phases:
        bought += phase.labels
        reached = [phases_of.figures[phase.index] for phases_of in judged]
        mean = estimate_mean(reached)
        drawn = float(np.mean([phases_of.errors[phase.index] for phases_of in judged]))
        phases.append(
            ExpectedPhase(
                phase=phase.index,
                labels=bought,
                rehearsed_labels=max(phases_of.labels[phase.index] for phases_of in judged),
                mean=mean.mean,
                half_width=math.hypot(mean.half_width or 0.0, _NORMAL * drawn),
            )
        )
    return ExpectedFigures(
        figure=judged[0].figure,
        phases=tuple(phases),
        majority=float(np.mean([phases_of.majority for phases_of in judged])),
        rehearsals=len(data),
        pool_records=min(len(public.labels) for public in data),
        judged_records=min(len(public.validation_labels) for public in data),
        is_smaller=sum(smaller.spec.schedule.cohort_sizes) < sum(plan.spec.schedule.cohort_sizes),
    )


def rehearse_repeatably(
    plan: Plan,
    public: PublicData,
    acquisition: Acquisition,
    *,
    run: int,
    physical_batch: int,
    on_model: Callable[[nn.Module], None] = lambda model: None,
) -> list[RehearsedPhase]:
    """One rehearsal, which draws what every other one of its number draws.

    Args:
      plan: made small enough for the public records.
      public: labeled records, and those that judge.
      acquisition: the score, or random.
      run: number of the rehearsal.
      physical_batch: records per backward pass.
      on_model: handed the model that each phase would release.
    """
    weights = replace(plan.spec.model, seed=plan.spec.model.seed + run)
    by_chance = acquisition.is_random
    # What follows in this process goes on with randomness that nobody can repeat.
    with torch.random.fork_rng(devices=[]):
        return rehearse(
            Plan(replace(plan.spec, model=weights), plan.phases),
            public,
            RehearsalMethod.RANDOM if by_chance else RehearsalMethod(plan.spec.selection.value),
            acquisition=JUDGE_UNUSED if by_chance else acquisition,
            physical_batch=physical_batch,
            first_cohort=SeededBits(run, "initial cohort"),
            draws=partial(SeededBits, run),
            on_model=on_model,
        )


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """One rehearsal: by phase its labels, headline figure and that one's error."""

    figure: str
    labels: tuple[int, ...]
    figures: tuple[float, ...]
    errors: tuple[float, ...]
    majority: float


def _judged(
    plan: Plan,
    public: PublicData,
    run: int,
    physical_batch: int,
    on_rehearsal: Callable[[int], None],
) -> _Judged:
    task, labels = plan.spec.model.task, public.validation_labels.numpy()
    errors: list[float] = []
    majority: list[float] = []

    def judge(model: nn.Module) -> None:
        guesses = probabilities(
            model, public.validation_inputs, physical_batch=physical_batch, task=task
        )
        errors.append(headline_standard_error(task, guesses, labels))
        if not majority:  # the same of every model
            majority.append(model_worth(task, guesses, labels).majority)

    phases = rehearse_repeatably(
        plan,
        public,
        plan.spec.acquisition,
        run=run,
        physical_batch=physical_batch,
        on_model=judge,
    )
    on_rehearsal(run)
    return _Judged(
        figure=next(iter(phases[0].figures)),
        labels=tuple(phase.labels for phase in phases),
        figures=tuple(float(next(iter(phase.figures.values()))) for phase in phases),
        errors=tuple(errors),
        majority=majority[0],
    )
