"""Whether records join batches by independent coins of the planned rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpal.audit import hypothesis_tests
from dpal.audit.findings import AuditFinding, Layer, statistical_finding
from dpal.planning.campaign_plan import Plan, TrainingPhase
from dpal.randomness import BitSource
from dpal.training.poisson_batches import PoissonBatches

_RECORDS = 4096  # of one cohort, at most
_LEAST_STEPS = 128


@dataclass(frozen=True)
class BatchMembership:
    """Who joined which batch.

    Attributes:
      name: of the phase and cohort.
      rate: as planned.
      matrix: (steps, n) whether a record joined.
    """

    name: str
    rate: float
    matrix: NDArray[np.bool_]


def inclusion_findings(plan: Plan, *, draws: int, rng: BitSource) -> list[AuditFinding]:
    """Draws batches of every part of the plan, more of them than it has, and looks at them.

    Args:
      plan: gives cohorts and rates.
      draws: coins to toss in each part, about.
      rng: source of random words.
    """
    factors = [share.participation for share in plan.spec.blocks] or [1.0]
    drawn = [
        batches
        for phase in plan.phases
        for part in phase.parts
        for batches in _draw(part, phase.index, _sizes(plan, phase.index), factors, draws, rng)
    ]
    return findings_about_batches(drawn)


def findings_about_batches(drawn: Sequence[BatchMembership]) -> list[AuditFinding]:
    """The findings about batches: rates, independence of records and of steps."""
    drawn = [batches for batches in drawn if 0 < batches.rate < 1]
    if not drawn:
        return []
    shares = [batches.matrix.mean() / batches.rate for batches in drawn]
    worst = max(shares, key=lambda share: abs(share - 1))
    rates = [hypothesis_tests.of_count(int(d.matrix.sum()), d.matrix.size, d.rate) for d in drawn]
    margin = max(4.9 * np.sqrt((1 - d.rate) / d.rate / d.matrix.size) for d in drawn)
    return [
        statistical_finding(
            Layer.MECHANISM,
            "sample rate / planned, at worst",
            hypothesis_tests.bonferroni(*rates),
            expected=f"1 +- {100 * margin:.2g} %",
            measured=f"{worst:.5f}",
            likely="sample rates are not the plan's",
            claimed=1.0,
            value=float(worst),
            within=float(margin),
        ),
        _variance(drawn),
        _joins(drawn),
        statistical_finding(
            Layer.MECHANISM,
            "correlation of two batches",
            hypothesis_tests.bonferroni(
                *(hypothesis_tests.of_succession(d.matrix, d.rate) for d in drawn)
            ),
            expected="0",
            measured=f"{max((_succession(d) for d in drawn), key=abs):.2g}",
            likely="records are dealt out (shuffled) instead of tossing a coin for every batch",
        ),
    ]


def _variance(drawn: Sequence[BatchMembership]) -> AuditFinding:
    ratios, p_values = [], []
    for batches in drawn:
        sizes = batches.matrix.sum(axis=1).astype(np.float64)
        records = batches.matrix.shape[1]
        p_values.append(hypothesis_tests.of_batch_sizes(sizes, records, batches.rate))
        ratios.append(_ratio(sizes, records, batches.rate))
    return statistical_finding(
        Layer.MECHANISM,
        "batch size variance / Poisson",
        hypothesis_tests.bonferroni(*p_values),
        expected="1",
        measured=f"{max(ratios, key=lambda ratio: abs(ratio - 1)):.3f}",
        likely="batches have a fixed size (shuffling), or records join together",
    )


def _joins(drawn: Sequence[BatchMembership]) -> AuditFinding:
    ratios, p_values = [], []
    for batches in drawn:
        counts = batches.matrix.sum(axis=0).astype(np.float64)
        steps = batches.matrix.shape[0]
        p_values.append(hypothesis_tests.of_joins(counts, steps, batches.rate))
        ratios.append(_ratio(counts, steps, batches.rate))
    return statistical_finding(
        Layer.MECHANISM,
        "variance of joins / Poisson",
        hypothesis_tests.bonferroni(*p_values),
        expected="1",
        measured=f"{max(ratios, key=lambda ratio: abs(ratio - 1)):.3f}",
        likely="every record joins equally often (shuffling), or some have other rates",
    )


def _ratio(counts: NDArray[np.float64], trials: int, rate: float) -> float:
    return float(np.mean(np.square(counts - trials * rate)) / (trials * rate * (1 - rate)))


def _succession(batches: BatchMembership) -> float:
    centred = batches.matrix - batches.rate
    return float((centred[1:] * centred[:-1]).mean() / (batches.rate * (1 - batches.rate)))


def _sizes(plan: Plan, phase: int) -> tuple[int, int]:
    """Records labeled before a phase, and in it; fewer where there are very many."""
    sizes = [planned.cohort_size for planned in plan.phases]
    return min(_RECORDS, sum(sizes[:phase])), min(_RECORDS, sizes[phase])


def _draw(
    part: TrainingPhase,
    phase: int,
    sizes: tuple[int, int],
    factors: Sequence[float],
    coins: int,
    rng: BitSource,
) -> list[BatchMembership]:
    """Who joined, for old and new records, of every block of the data set by turns."""
    old, new = sizes
    cohorts = np.repeat(np.array([phase - 1, phase], dtype=np.int16), [old, new])
    steps = max(_LEAST_STEPS, coins // (old + new))
    participation = np.resize(np.array(factors), cohorts.size)
    batches = replace(PoissonBatches.of_part(part, phase, cohorts, participation), steps=steps)
    matrix = np.zeros((steps, cohorts.size), dtype=np.bool_)
    for step, rows in zip(range(steps), batches.draw(rng=rng), strict=False):
        matrix[step, rows] = True
    ages = [("new", cohorts == phase, part.sample_rate_new)]
    if old:
        ages.append(("old", cohorts != phase, part.sample_rate_old))
    return [
        BatchMembership(f"phase {phase}, {age} records", rate * factor, matrix[:, rows & here])
        for age, rows, rate in ages
        for factor in sorted(set(factors))
        if (rows & (here := participation == factor)).any()
    ]
