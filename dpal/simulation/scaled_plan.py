"""A plan made smaller for a set of public records, so that learning goes as it would at full size.

Labels, batches, divisors and the noise of training and thresholds shrink together; steps, sample
rates and the noise of single answers stay. The noise on a mean gradient is then that of the plan.
It is no private plan: with fewer records in a sum and less noise on it, one record shows more.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

from dpal import check
from dpal.errors import ParameterError
from dpal.planning.campaign_plan import Plan, TrainingPhase
from dpal.planning.campaign_spec import LEAST_CHOICE, CampaignSpec
from dpal.planning.selection_steps import (
    HiddenGate,
    NoisyRanking,
    RandomDraw,
    Remaining,
    SecretRandomDraw,
    SelectionStep,
    VisibleAnswers,
    design_selections,
)

_LEAST_LABELS = 10  # of a phase; below, one label more or less decides
_MOST_LABELED = 0.5  # of the public records: a choice needs records to leave out


def scaled_plan(plan: Plan, records: int) -> Plan:
    """The plan as a rehearsal on public records runs it. NOT PRIVATE: for public records only.

    As many labels as half of the public records, and never more than the plan's: what is learnt
    from few labels says little about many. Where the private pool has more labels than half of
    its records, so has the public one.

    Args:
      plan: of the campaign, for its private pool.
      records: public records that may be labeled.

    Raises:
      ParameterError: they leave fewer than 10 labels for a phase, or answers cannot be designed
        for so few records.
    """
    check.at_least(1, public_records=records)
    spec, labels = plan.spec, sum(plan.spec.schedule.cohort_sizes)
    share = min(1.0, max(records / spec.pool_size, _MOST_LABELED * records / labels))
    fewest = min(spec.schedule.cohort_sizes)
    if round(share * fewest) < _LEAST_LABELS and share < 1:
        wanted = _LEAST_LABELS / fewest * min(spec.pool_size, labels / _MOST_LABELED)
        raise ParameterError(
            f"{records:,} public records leave {round(share * fewest)} labels for a phase of a "
            f"rehearsal, which needs {_LEAST_LABELS}; use about {wanted:,.0f} records or more"
        )
    smaller = _scaled_spec(spec, records, share)
    designed = design_selections(smaller) if _is_designed_anew(plan) else None
    sizes = (*smaller.schedule.cohort_sizes, smaller.unlabeled)
    phases = tuple(
        replace(
            phase,
            cohort_size=sizes[phase.index],
            selection=RandomDraw(candidates=smaller.candidates)
            if not phase.index
            else _scaled_step(
                phase.selection,
                share,
                designed[phase.index]
                if designed and not phase.is_self_training
                else phase.selection,
            ),
            training=_scaled_training(phase.training, share),
            catch_up=_scaled_training(phase.catch_up, share) if phase.catch_up else None,
        )
        for phase in plan.phases
    )
    return Plan(smaller, phases)


def _scaled_spec(spec: CampaignSpec, records: int, share: float) -> CampaignSpec:
    schedule = spec.schedule
    initial = max(1, round(share * schedule.initial))
    queries = tuple(max(1, round(share * query)) for query in schedule.queries)
    candidates = None
    if spec.candidates is not None:
        candidates = max(round(share * spec.candidates), LEAST_CHOICE * sum(queries))
    return replace(
        spec,
        pool_size=records,
        secret_draw=False,  # as its steps
        candidates=candidates if candidates and candidates < records - initial else None,
        schedule=replace(
            schedule,
            initial=initial,
            queries=queries,
            batch_size=max(1, round(share * schedule.batch_size)),
        ),
    )


def _is_designed_anew(plan: Plan) -> bool:
    """Whether how single records answer depends on the share of the pool that is wanted."""
    return any(isinstance(phase.selection, VisibleAnswers) for phase in plan.phases)


def _scaled_training(part: TrainingPhase, share: float) -> TrainingPhase:
    return replace(
        part,
        noise_multiplier=share * part.noise_multiplier,
        expected_batch_size=share * part.expected_batch_size,
    )


@singledispatch
def _scaled_step(step: object, share: float, designed: SelectionStep) -> SelectionStep:
    raise ParameterError(f"{type(step).__name__} is a selection that no rehearsal makes smaller")


@_scaled_step.register
def _(step: RandomDraw, share: float, designed: SelectionStep) -> SelectionStep:
    return step


@_scaled_step.register
def _(step: Remaining, share: float, designed: SelectionStep) -> SelectionStep:
    return step


@_scaled_step.register
def _(step: SecretRandomDraw, share: float, designed: SelectionStep) -> SelectionStep:
    return RandomDraw()  # as many as coins draw on average; nothing is to be kept secret here


@_scaled_step.register
def _(step: NoisyRanking, share: float, designed: SelectionStep) -> SelectionStep:
    return step  # noise on single scores, whatever the size of the pool


@_scaled_step.register
def _(step: HiddenGate, share: float, designed: SelectionStep) -> SelectionStep:
    noise = share * step.threshold.noise_multiplier
    return replace(
        step,
        threshold=replace(step.threshold, noise_multiplier=noise),
        aim=max(1, round(share * step.aim)),
        # Of a plain search all of these are 0, and stay it.
        aim_in_all=round(share * step.aim_in_all),
        limit=round(share * step.limit),
        cap=round(share * step.cap),
    )


@_scaled_step.register
def _(step: VisibleAnswers, share: float, designed: SelectionStep) -> SelectionStep:
    if not isinstance(designed, VisibleAnswers):
        raise ParameterError("answers were designed anew as another kind of selection")
    noise = step.threshold.noise_multiplier * designed.aim / step.aim
    return replace(designed, threshold=replace(designed.threshold, noise_multiplier=noise))
