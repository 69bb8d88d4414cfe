"""Chooses a score by rehearsing a campaign on public records, before a private one is touched.

Nothing private is read: the answer depends on the plan and on public records, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dpal import check
from dpal.errors import DpalError
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, SelectionMode
from dpal.planning.certify_campaign import certified_plan
from dpal.randomness import seeded
from dpal.simulation.paired_comparison import (
    ComparisonVerdict,
    MeanEstimate,
    PairedComparison,
    compare_with_reference,
    estimate_mean,
)
from dpal.simulation.rehearsal import PublicData, RehearsalMethod, rehearse, spec_for
from dpal.simulation.scaled_plan import scaled_plan
from dpal.simulation.seeded_bits import SeededBits

_JUDGE_UNUSED = Acquisition.LEAST_CONFIDENCE  # judges random selections, which nobody reads here


@dataclass(frozen=True, kw_only=True)
class AcquisitionChoice:
    """Which acquisition to use, and why.

    Attributes:
      acquisition: the chosen one.
      reason: in words, for people.
      labels: bought by each rehearsal at most; the plan's own number where there were records
        enough.
      estimates: last headline figure of every acquisition that was rehearsed.
      comparisons: every score beside random, rehearsal by rehearsal.
      refused: why others could not be rehearsed.
    """

    acquisition: Acquisition
    reason: str
    labels: int
    estimates: Mapping[Acquisition, MeanEstimate]
    comparisons: Mapping[Acquisition, PairedComparison]
    refused: Mapping[Acquisition, str]

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "acquisition": self.acquisition.value,
            "reason": self.reason,
            "labels": self.labels,
            "estimates": {name.value: asdict(mean) for name, mean in self.estimates.items()},
            "comparisons": {
                name.value: comparison.as_record() for name, comparison in self.comparisons.items()
            },
            "refused": {name.value: reason for name, reason in self.refused.items()},
        }


def split_in_halves(inputs: Tensor, labels: Tensor, *, runs: int) -> list[PublicData]:
    """Divides labeled public records anew for each rehearsal: half to buy labels of, half to judge.

    Args:
      inputs: (n, *input_shape) of records that anyone may know, at least two.
      labels: (n,) or (n, labels).
      runs: how many rehearsals.
    """
    check.at_least(2, public_records=len(labels))
    halves = []
    for run in range(runs):
        order = torch.from_numpy(seeded(run, "halves of public records").permutation(len(labels)))
        pool, judge = order[: len(order) // 2], order[len(order) // 2 :]
        halves.append(PublicData(inputs[pool], labels[pool], inputs[judge], labels[judge]))
    return halves


def choose_acquisition(
    spec: CampaignSpec,
    data: Sequence[PublicData],
    *,
    candidates: Sequence[Acquisition],
    physical_batch: int,
    on_rehearsal: Callable[[Acquisition, int], None] = lambda acquisition, run: None,
) -> AcquisitionChoice:
    """Rehearses every candidate and random selection on the same public records.

    The best mean wins, so that what wins is never worse than random on these records; random wins
    ties, as it is simpler and costs nothing. A score that is ahead by less than noise is taken, and
    the reason says so.

    Args:
      spec: of the campaign, for its private pool; its own acquisition does not matter.
      data: public records of each rehearsal, as many as rehearsals, at least two: see
        `split_in_halves`. Neither part may be what the campaign's result is reported on.
      candidates: scores; random is rehearsed whether it is among them or not.
      physical_batch: records per backward pass.
      on_rehearsal: told of each that is done, with its number.

    Raises:
      ParameterError: fewer than two rehearsals, a set of public records that is too small, or
        the plan of random selection is impossible.
      PlanRejected: no plan keeps the promise with random selection.
    """
    check.at_least(2, rehearsals=len(data))
    least = min(len(public.labels) for public in data)
    wanted = dict.fromkeys([Acquisition.RANDOM, *candidates])
    figures: dict[Acquisition, dict[int, float]] = {}
    refused: dict[Acquisition, str] = {}
    plans: dict[bool, Plan] = {}
    labels = 0
    for acquisition in wanted:
        try:
            if acquisition.is_random not in plans:
                plans[acquisition.is_random] = _rehearsed_plan(spec, acquisition, least)
            plan = plans[acquisition.is_random]
            figures[acquisition] = {}
            for run, public in enumerate(data):
                figures[acquisition][run] = _reached(
                    plan, public, acquisition, spec, run=run, physical_batch=physical_batch
                )
                on_rehearsal(acquisition, run)
        except DpalError as error:
            if acquisition.is_random:
                raise
            figures.pop(acquisition, None)
            refused[acquisition] = str(error)
            continue
        labels = max(labels, sum(plan.spec.schedule.cohort_sizes))
    return choose_best(figures, refused=refused, labels=labels)


def choose_best(
    figures: Mapping[Acquisition, Mapping[int, float]],
    *,
    labels: int,
    refused: Mapping[Acquisition, str] | None = None,
) -> AcquisitionChoice:
    """Chooses by the figures of finished rehearsals.

    Args:
      figures: last headline figure in [0, 1] by acquisition and run; random and its runs first.
      labels: bought by each rehearsal at most.
      refused: why other candidates could not be rehearsed.
    """
    random = Acquisition.RANDOM
    by_name = {name.value: reached for name, reached in figures.items()}
    comparisons = {
        Acquisition(name): comparison
        for name, comparison in compare_with_reference(by_name, random.value).items()
    }
    estimates = {name: estimate_mean(list(reached.values())) for name, reached in figures.items()}
    # The first of equal means, and random is the first of all.
    best = max(estimates, key=lambda name: estimates[name].mean)
    return AcquisitionChoice(
        acquisition=best,
        reason=_reason(best, estimates, comparisons),
        labels=labels,
        estimates=estimates,
        comparisons=comparisons,
        refused=refused or {},
    )


def _rehearsed_plan(spec: CampaignSpec, acquisition: Acquisition, records: int) -> Plan:
    """A certified plan, made small enough; it is the same for all scores."""
    if acquisition.is_random:
        wanted = spec_for(RehearsalMethod.RANDOM, spec)
    elif spec.selects:
        wanted = spec.varied(acquisition=acquisition)
    else:
        hidden = spec.selection is SelectionMode.HIDDEN
        share = 0.0 if hidden else spec.target.epsilon / 4  # as `privacy.selection_epsilon` has it
        wanted = spec.varied(acquisition=acquisition, selection_epsilon=share)
    return scaled_plan(certified_plan(wanted).plan, records)


def _reached(
    plan: Plan,
    public: PublicData,
    acquisition: Acquisition,
    spec: CampaignSpec,
    *,
    run: int,
    physical_batch: int,
) -> float:
    """The last headline figure of one rehearsal."""
    weights = replace(plan.spec.model, seed=plan.spec.model.seed + run)
    phases = rehearse(
        Plan(replace(plan.spec, model=weights), plan.phases),
        public,
        _method(spec, acquisition),
        acquisition=_JUDGE_UNUSED if acquisition.is_random else acquisition,
        physical_batch=physical_batch,
        first_cohort=SeededBits(run, "initial cohort"),
    )
    return float(next(iter(phases[-1].figures.values())))


def _method(spec: CampaignSpec, acquisition: Acquisition) -> RehearsalMethod:
    if acquisition.is_random:
        return RehearsalMethod.RANDOM
    return RehearsalMethod(spec.selection.value)


def _reason(
    best: Acquisition,
    estimates: Mapping[Acquisition, MeanEstimate],
    comparisons: Mapping[Acquisition, PairedComparison],
) -> str:
    mean = estimates[best]
    half = f" ± {100 * mean.half_width:.1f}" if mean.half_width is not None else ""
    reached = f"{best} reached {100 * mean.mean:.1f}{half} % in {mean.runs} rehearsals"
    others = "; ".join(
        f"{name}: {comparison.in_words()}" for name, comparison in comparisons.items()
    )
    if best is Acquisition.RANDOM:
        more = f"; no score did better ({others})" if others else "; no score could be rehearsed"
        return f"{reached} on public records{more}"
    beside = f"beside random: {others}"
    if comparisons[best].verdict is ComparisonVerdict.BETTER:
        return f"{reached} on public records, more than random by more than noise; {beside}"
    return f"{reached} on public records, the best, though not beyond noise; {beside}"
