"""Chooses a score by rehearsing a campaign on public records, before a private one is touched.

Nothing private is read: the answer depends on the plan and on public records, so it costs nothing.
All that is drawn repeats, so that the same plan and records give the same answer; across machines
as far as their arithmetic agrees to the last digit.
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
from dpal.planning.campaign_spec import Acquisition, CampaignSpec
from dpal.planning.certify_campaign import certified_or_next_best
from dpal.randomness import seeded
from dpal.simulation.paired_comparison import (
    ComparisonVerdict,
    MeanEstimate,
    PairedComparison,
    compare_with_reference,
    estimate_mean,
)
from dpal.simulation.rehearsal import PublicData
from dpal.simulation.rehearse_plan import JUDGE_UNUSED, rehearse_repeatably
from dpal.simulation.scaled_plan import scaled_plan


@dataclass(frozen=True, kw_only=True)
class AcquisitionChoice:
    """Which acquisition to use, and why.

    Attributes:
      acquisition: the chosen one.
      reason: in words, for people.
      labels: bought by each rehearsal at most; the plan's own number where there were records
        enough.
      estimates: last headline figure of every acquisition that was rehearsed.
      comparisons: every other one beside the reference, rehearsal by rehearsal.
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


def split_in_halves(
    inputs: Tensor, labels: Tensor, *, runs: int, most: int | None = None
) -> list[PublicData]:
    """Divides labeled public records anew for each rehearsal: half to buy labels of, half to judge.

    Args:
      inputs: (n, *input_shape) of records that anyone may know, at least two.
      labels: (n,) or (n, labels).
      runs: how many rehearsals.
      most: records that one rehearsal uses, drawn anew for each; None uses all.
    """
    check.at_least(2, public_records=len(labels))
    halves = []
    for run in range(runs):
        shuffled = seeded(run, "halves of public records").permutation(len(labels))
        order = torch.from_numpy(shuffled[:most])
        pool, judge = order[: len(order) // 2], order[len(order) // 2 :]
        halves.append(PublicData(inputs[pool], labels[pool], inputs[judge], labels[judge]))
    return halves


def choose_acquisition(
    specs: Mapping[Acquisition, CampaignSpec],
    data: Sequence[PublicData],
    *,
    physical_batch: int,
    reference: Acquisition = Acquisition.RANDOM,
    on_rehearsal: Callable[[Acquisition, int], None] = lambda acquisition, run: None,
) -> AcquisitionChoice:
    """Rehearses acquisitions on the same public records, each by its own plan.

    Another one than the reference is chosen only where it is ahead by more than noise, so that
    what is chosen is never worse by more than noise on these records; ties and doubts go to the
    reference.

    Args:
      specs: the campaign with each acquisition, for its private pool, under one promise. The
        reference must be among them.
      data: public records of each rehearsal, as many as rehearsals, at least two: see
        `split_in_halves`. Neither part may be what the campaign's result is reported on.
      physical_batch: records per backward pass.
      reference: what is used in doubt.
      on_rehearsal: told of each that is done, with its number.

    Raises:
      ParameterError: fewer than two rehearsals, a set of public records that is too small, or
        the plan of the reference is impossible.
      PlanRejected: no plan keeps the promise with the reference.
    """
    check.at_least(2, rehearsals=len(data))
    least = min(len(public.labels) for public in data)
    figures: dict[Acquisition, dict[int, float]] = {}
    refused: dict[Acquisition, str] = {}
    plans: dict[CampaignSpec, Plan] = {}
    labels = 0
    for acquisition in dict.fromkeys([reference, *specs]):
        try:
            plan = _rehearsed_plan(specs[acquisition], least, plans)
            reached = {}
            for run, public in enumerate(data):
                reached[run] = _reached(
                    plan, public, acquisition, run=run, physical_batch=physical_batch
                )
                on_rehearsal(acquisition, run)
        except DpalError as error:
            if acquisition is reference:
                raise
            refused[acquisition] = str(error)
            continue
        figures[acquisition] = reached
        labels = max(labels, sum(plan.spec.schedule.cohort_sizes))
    return choose_best(figures, reference=reference, refused=refused, labels=labels)


def choose_best(
    figures: Mapping[Acquisition, Mapping[int, float]],
    *,
    labels: int,
    reference: Acquisition = Acquisition.RANDOM,
    refused: Mapping[Acquisition, str] | None = None,
) -> AcquisitionChoice:
    """Chooses by the figures of finished rehearsals: the best of those ahead by more than noise.

    Args:
      figures: last headline figure in [0, 1] by acquisition and run.
      labels: bought by each rehearsal at most.
      reference: what is used where none is ahead; among the figures.
      refused: why other candidates could not be rehearsed.
    """
    by_name = {name.value: reached for name, reached in figures.items()}
    comparisons = {
        Acquisition(name): comparison
        for name, comparison in compare_with_reference(by_name, reference.value).items()
    }
    estimates = {name: estimate_mean(list(reached.values())) for name, reached in figures.items()}
    ahead = [
        name
        for name, comparison in comparisons.items()
        if comparison.verdict is ComparisonVerdict.BETTER
    ]
    best = max(ahead, key=lambda name: estimates[name].mean, default=reference)
    return AcquisitionChoice(
        acquisition=best,
        reason=_reason(best, reference, estimates, comparisons),
        labels=labels,
        estimates=estimates,
        comparisons=comparisons,
        refused=refused or {},
    )


def _rehearsed_plan(spec: CampaignSpec, records: int, plans: dict[CampaignSpec, Plan]) -> Plan:
    """A certified plan, made small enough; it is the same for all scores, and made once."""
    alike = replace(spec, acquisition=JUDGE_UNUSED) if spec.selects else spec
    if alike not in plans:
        plans[alike] = scaled_plan(certified_or_next_best(spec).plan, records)
    return plans[alike]


def _reached(
    plan: Plan, public: PublicData, acquisition: Acquisition, *, run: int, physical_batch: int
) -> float:
    """The last headline figure of one rehearsal, which draws what others of its number draw."""
    phases = rehearse_repeatably(plan, public, acquisition, run=run, physical_batch=physical_batch)
    return float(next(iter(phases[-1].figures.values())))


def _reason(
    best: Acquisition,
    reference: Acquisition,
    estimates: Mapping[Acquisition, MeanEstimate],
    comparisons: Mapping[Acquisition, PairedComparison],
) -> str:
    mean = estimates[best]
    half = f" ± {100 * mean.half_width:.1f}" if mean.half_width is not None else ""
    reached = f"{best} reached {100 * mean.mean:.1f}{half} % in {mean.runs} rehearsals"
    others = "; ".join(
        f"{name}: {comparison.in_words()}" for name, comparison in comparisons.items()
    )
    if best is not reference:
        return (
            f"{reached} on public records, ahead of {reference} by more than noise; beside "
            f"{reference}: {others}"
        )
    if not others:
        return f"{reached} on public records; nothing else could be rehearsed"
    return (
        f"{reached} on public records, and nothing was ahead of it by more than noise; beside "
        f"{reference}: {others}"
    )
