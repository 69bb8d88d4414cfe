"""Selections on simulated scores: what each way of selecting finds, without any data.

Source: Schwethelm et al. (2025), Table 5 and Figs. 9 to 11; the paper's mechanisms at the
same pure loss per selection, beside the ones of this project.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.acquisition.noisy_threshold_search import Rows
from dpal.acquisition.scores import ENTROPY_CLIP
from dpal.acquisition.selection import QueryHistory, Selection, select
from dpal.errors import ParameterError
from dpal.mechanisms import baseline_mechanisms
from dpal.planning.campaign_plan import Plan
from dpal.planning.campaign_spec import CampaignSpec, SelectionMode
from dpal.randomness import BitSource
from dpal.simulation.selection_quality import SelectionQuality, measure_selection

Scores = NDArray[np.float64]

_BATCH = 1 << 16
_PUBLIC = 2000  # simulated records of a validation set


@dataclass(frozen=True, kw_only=True)
class ScoreModel:
    """Scores in [0, 1] from a beta distribution.

    Attributes:
      alpha: below 1, most records are certain (scores near 0).
      beta: the larger, the rarer are uncertain ones.
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        check.positive(alpha=self.alpha, beta=self.beta)

    def draw(self, count: int, *, rng: np.random.Generator) -> Scores:
        """Draws (count,) scores."""
        return rng.beta(self.alpha, self.beta, count)


@dataclass(frozen=True, kw_only=True)
class SimulatedPhase:
    """What one mechanism found in one selection.

    Attributes:
      phase: number of the phase.
      mechanism: its name.
      certified: whether a campaign's plan covers it; the others are comparisons of one
        selection at one epsilon.
      quality: of the selection.
      scores: of the whole pool.
      selected: scores of the selected.
    """

    phase: int
    mechanism: str
    certified: bool
    quality: SelectionQuality
    scores: Scores = field(repr=False, compare=False)
    selected: Scores = field(repr=False, compare=False)


def simulate_mode(
    plan: Plan, model: ScoreModel, *, rng: np.random.Generator, noise: BitSource
) -> Iterator[SimulatedPhase]:
    """Runs all selections of a certified plan on simulated scores.

    Where queries have candidates, they select from these alone, and are judged beside all.

    Args:
      plan: with its selections.
      model: of the scores; drawn anew in every phase.
      rng: of the scores.
      noise: of the selections.
    """
    noisy_count = selected = 0
    [public] = rng.spawn(1)  # the scores of other ways of selecting stay the same
    for phase, left in _pools(plan.spec):
        scores = model.draw(left, rng=rng)
        step = plan.phases[phase].selection
        # The paper's clip bounds its noise; thresholds need none.
        shown = np.minimum(scores, ENTROPY_CLIP) if step.clips_scores else scores
        # Scores are drawn anew in every phase, so that the first rows are as random as any. A
        # query may buy less than planned: of the candidates more are left then.
        candidates = plan.spec.candidates
        offered = left if candidates is None else min(left, candidates - selected)
        width = ENTROPY_CLIP if step.clips_scores else 1.0
        size = plan.phases[phase].cohort_size
        history = QueryHistory(
            left=offered,
            noisy_count=noisy_count,
            selected=selected,
            public_scores=np.minimum(model.draw(_PUBLIC, rng=public), width),
        )
        chosen = select(
            step, _batches(shown[:offered]), size, width=width, rng=noise, history=history
        )
        noisy_count += chosen.counted.noisy_count if chosen.counted else 0
        selected += chosen.rows.size
        yield _measured(phase, plan.spec.selection.value, True, scores, chosen, size)


def simulate_mechanisms(
    spec: CampaignSpec, model: ScoreModel, *, rng: np.random.Generator, noise: BitSource
) -> Iterator[SimulatedPhase]:
    """Runs the paper's mechanisms at selection_epsilon / K each, and chance.

    A generator in the same state draws the same scores here as in `simulate_mode`: whatever else
    is drawn by chance comes from another stream.
    """
    if spec.selection is SelectionMode.HIDDEN:
        raise ParameterError("mechanisms are compared at a selection_epsilon; hidden has none")
    epsilon = spec.selection_epsilon / len(spec.schedule.queries)
    [orders] = rng.spawn(1)
    for phase, left in _pools(spec):
        scores, size = model.draw(left, rng=rng), spec.schedule.cohort_sizes[phase]
        edge = float(np.partition(scores, -size)[-size])
        for name, mechanism in _mechanisms(epsilon, spec.target.delta, left, size, edge).items():
            ranked = baseline_mechanisms.keys(mechanism, scores, rng=noise)
            yield _measured(phase, name, False, scores, _top(ranked, size, orders), size)
        drawn = orders.permutation(left)[:size]
        chance = Selection(drawn, np.empty(0, dtype=np.int64))
        yield _measured(phase, "random", True, scores, chance, size)


def with_selection_mode(spec: CampaignSpec, mode: SelectionMode) -> CampaignSpec:
    """The same promise with another way of selecting."""
    hidden = mode is SelectionMode.HIDDEN
    share = spec.selection_epsilon or spec.target.epsilon / 4
    return spec.varied(
        selection=mode, selection_epsilon=0.0 if hidden else share, threshold_noise=None
    )


def _mechanisms(
    epsilon: float, delta: float, pool: int, selected: int, edge: float
) -> dict[str, object]:
    """The mechanisms of the paper's Fig. 11."""
    clip = ENTROPY_CLIP
    return {
        "Laplace, not clipped": baseline_mechanisms.LaplaceScores(epsilon=epsilon, width=1.0),
        "Laplace, clipped": baseline_mechanisms.LaplaceScores(epsilon=epsilon, width=clip),
        "Gaussian": baseline_mechanisms.GaussianScores(epsilon=epsilon, delta=delta, width=clip),
        "subsampled Gaussian": baseline_mechanisms.SubsampledGaussianScores(
            epsilon=epsilon, delta=delta, width=clip, sample_rate=0.5
        ),
        "exponential weights": baseline_mechanisms.ExponentialWeights(
            epsilon=epsilon, width=clip, pool=pool, selected=selected
        ),
        "symmetric response": baseline_mechanisms.SymmetricResponse(
            epsilon=epsilon, threshold=edge
        ),
    }


def _pools(spec: CampaignSpec) -> Iterator[tuple[int, int]]:
    """Phases that select, and how many records are unlabeled then."""
    sizes = spec.schedule.cohort_sizes
    for phase in range(1, len(sizes)):
        yield phase, spec.pool_size - sum(sizes[:phase])


def _batches(scores: Scores) -> Iterator[tuple[Rows, Scores]]:
    for start in range(0, scores.size, _BATCH):
        part = scores[start : start + _BATCH]
        yield np.arange(start, start + part.size), part


def _top(ranked: NDArray[np.int64] | Scores, count: int, rng: np.random.Generator) -> Selection:
    shuffled = rng.permutation(ranked.size)  # ties are broken by chance
    best = shuffled[np.argsort(ranked[shuffled], kind="stable")[-count:]]
    return Selection(best, np.empty(0, dtype=np.int64))


def _measured(
    phase: int, mechanism: str, certified: bool, scores: Scores, chosen: Selection, size: int
) -> SimulatedPhase:
    return SimulatedPhase(
        phase=phase,
        mechanism=mechanism,
        certified=certified,
        # Where queries share a cap, one may buy more: the best are as many then.
        quality=measure_selection(scores, chosen.rows, query=max(size, chosen.rows.size)),
        scores=scores,
        selected=scores[chosen.rows],
    )
