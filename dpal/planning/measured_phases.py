"""How the phases of a campaign are measured on records that are protected, and how precise that is.

Each phase's model is measured once, by counts of the records over what is true and what was
answered, with noise on every count (`MeasuredCounts`). All phases together keep what is promised to
the records of the validation set, which are no records of the pool.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from dpal.accounting.accountant_tolerance import tolerance
from dpal.accounting.cohort_spending import Accountant, campaign_epsilon, second_opinion
from dpal.accounting.events import FIGURES, VALIDATION, Charge, NoisyFigures, Release
from dpal.accounting.safe_search import smallest_safe
from dpal.accounting.validation_count_sensitivity import SCORE_BINS, MeasuredCounts
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_spec import ProtectedValidation
from dpal.privacy import PrivacyTarget, Unit

_ROOM = 1e-5  # relative, below what is promised: more than rounding can add up to
_LEAST_NOISE = 1e-2
_MARGIN = 0.7  # of the noise by Rényi bounds, which is a tenth more than is needed
QUANTILE = 1.959964  # of a normal distribution, for intervals of 95 %


def figures_release(index: int, event: NoisyFigures, *, trial: int | None = None) -> Release:
    """What measuring a phase's model releases, or that of a trial before the phase trains.

    Args:
      index: of the phase.
      event: what it costs the records of the validation set.
      trial: number of the trial, from 1; None for the phase's own model.
    """
    return Release(
        name=figures_name(index, trial=trial),
        kind=FIGURES,
        phase=index,
        charges=(Charge(cohorts=(VALIDATION,), event=event),),
    )


def figures_name(index: int, *, trial: int | None = None) -> str:
    """Name of that release in the ledger."""
    measured = f"phase-{index}" if trial is None else f"phase-{index}/trial-{trial}"
    return f"{measured}/figures"


def measured_counts(model: ModelSpec, validation: ProtectedValidation) -> MeasuredCounts:
    """What is counted of every validation record.

    Args:
      model: whose answers are counted: says what a label is, and how many there are.
      validation: what else is asked for.
    """
    labels = model.classes if model.task is Task.MULTI_LABEL else 1
    return MeasuredCounts(labels=labels, auc=validation.auc, group_records=validation.group_records)


@lru_cache(maxsize=32)
def calibrated_figures(
    validation: ProtectedValidation,
    target: PrivacyTarget,
    *,
    models: int,
    accountant: Accountant,
    counted: MeasuredCounts,
) -> NoisyFigures:
    """The figures with the least noise that keeps the promise over all phases, by both accountants.

    Args:
      validation: what is promised to its records.
      target: of the campaign: gives delta, adjacency and unit.
      models: that are measured, once each: those of phases, and of trials.
      accountant: by which the promise is kept.
      counted: what is counted of each.

    Raises:
      ParameterError: it asks for more than the campaign promises.
    """
    _require_possible(validation, target)
    moved = counted.squared_sensitivity(target.adjacency)
    promised = replace(target, epsilon=validation.epsilon)

    def measured(noise: float) -> tuple[Release, ...]:
        event = NoisyFigures(noise_multiplier=noise, counts_moved=moved)
        return tuple(figures_release(index, event) for index in range(models))

    def cost(noise: float, accountant: Accountant = accountant) -> float:
        return campaign_epsilon(measured(noise), promised, accountant=accountant)

    limit = promised.epsilon * (1 - _ROOM)
    # Rényi bounds need no grid, so they say where to look; they ask for a little more noise.
    try:
        least = smallest_safe(lambda noise: cost(noise, Accountant.RDP), limit, low=_LEAST_NOISE)
    except ParameterError as error:
        raise ParameterError.before_release(
            f"validation.epsilon {validation.epsilon:g} is less than figures with any noise are "
            f"shown to cost at delta {target.delta:.3g}; raise it"
        ) from error
    noise = smallest_safe(cost, limit, low=_MARGIN * least)
    # Both are upper bounds, and dp-accounting's may overstate by its tolerance.
    while not second_opinion(measured(noise), promised) <= promised.epsilon + tolerance(
        measured(noise), promised
    ):
        noise *= 1 + _ROOM
    return NoisyFigures(noise_multiplier=noise, counts_moved=moved)


def headline_half_width(model: ModelSpec, records: int, noise: float) -> float:
    """Half the width of a 95 % interval of the figure by which phases are compared, at 80 %.

    Args:
      model: that is measured.
      records: of the validation set.
      noise: standard deviation on each count; 0 for none.
    """
    if model.task is Task.MULTI_LABEL:
        return expected_f1_half_width(records, model.classes, noise)
    return expected_half_width(records, model.classes, noise)


def expected_half_width(
    records: int, classes: int, noise: float, *, accuracy: float = 0.8
) -> float:
    """Half the width of a 95 % interval of the accuracy of one phase, as a share of 1.

    Args:
      records: of the validation set.
      classes: as many counts make up the accuracy.
      noise: standard deviation on each.
      accuracy: that is expected; the sampling of records matters most around a half.
    """
    sampling = accuracy * (1 - accuracy) / records
    blurred = blur_of_accuracy(records, classes, noise) if noise else 0.0
    return QUANTILE * math.sqrt(sampling + blurred)


def expected_f1_half_width(records: int, labels: int, noise: float, *, f1: float = 0.8) -> float:
    """The same of micro-F1, where a record has one of the labels on average.

    Labels of one record are taken to be right and wrong independently.

    Args:
      records: of the validation set.
      labels: of each; four counts each make up micro-F1.
      noise: standard deviation on each count.
      f1: that is expected; as many labels are missed as are said in vain.
    """
    # Of a record: f1 hits on average, and (1 - f1) of either mistake (`headline_terms`).
    sampling = records * (f1 * 4 * (1 - f1) ** 2 + 2 * (1 - f1) * f1**2)
    blurred = blur_of_f1(f1, labels, noise) if noise else 0.0
    return QUANTILE * math.sqrt(sampling + blurred) / (2 * records)


def expected_auc_half_width(records: int, labels: int, noise: float, *, area: float = 0.8) -> float:
    """The same of the area under the ROC curve, or of the mean of several, without what bins hide.

    Args:
      records: of the validation set; half of them have the label where there is one, and where
        there are several each record has one of them on average.
      labels: whose areas are averaged; 1 for two classes.
      noise: standard deviation on each count.
      area: that is expected.

    Source: Hanley & McNeil (1982), of scores with exponential tails.
    """
    has = records / max(2, labels)
    without = records - has
    both, two = area / (2 - area), 2 * area**2 / (1 + area)
    ranked = area * (1 - area) + (has - 1) * (both - area**2) + (without - 1) * (two - area**2)
    # Half of the bins lie below most records, and half above: weights are area, or its rest.
    weight = (area**2 + (1 - area) ** 2) / 2
    blurred = (noise**2 + 1 / 12) * SCORE_BINS * weight * (1 / has**2 + 1 / without**2) / labels
    return QUANTILE * math.sqrt(max(0.0, ranked) / (has * without) + (blurred if noise else 0.0))


def blur_of_f1(f1: float, labels: int, noise: float) -> float:
    """Variance that noise adds to twice the hits, less f1 times all that was said or is true.

    A label's hits weigh 2 - 2 f1 in it, and either mistake f1.
    """
    return labels * (noise**2 + 1 / 12) * (4 * (1 - f1) ** 2 + 2 * f1**2)


def blur_of_accuracy(records: int, classes: int, noise: float) -> float:
    """Variance that noise adds to an accuracy from counts; rounding each adds 1/12 more."""
    return classes * (noise**2 + 1 / 12) / records**2


def _require_possible(validation: ProtectedValidation, target: PrivacyTarget) -> None:
    if validation.epsilon > target.epsilon:
        raise ParameterError.before_release(
            f"validation.epsilon {validation.epsilon:g} is above privacy.epsilon "
            f"{target.epsilon:g}, which is promised to everybody; lower it or leave it null"
        )
    if target.unit is not Unit.RECORD and validation.groups is None:
        raise ParameterError.before_release(
            "validation.protected protects single records here, and the unit is one "
            f"{target.unit}, who may have records in pool and validation set; measure on public "
            "records (validation: {public: true, why: in words})"
        )
    if not target.delta < 1 / validation.owners:
        raise ParameterError.before_release(
            f"privacy.delta {target.delta:.3g} is not below one over the {validation.owners:,} "
            f"{target.unit}s of the validation set, which are promised the same; lower it"
        )
