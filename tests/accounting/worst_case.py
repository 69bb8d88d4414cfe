"""The worst that any record can suffer, by following every output of every release.

One record against the rest: at each output an adversary chooses whether the record enters
or stays, and on which side of a threshold its score lies. Nothing is composed and no curve
is used: the chances of all outputs are multiplied along all paths, in both worlds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpal.accounting.events import NoisyScores, NoisyThreshold, RandomizedResponse
from dpal.planning.campaign_plan import Plan, TrainingPhase
from dpal.planning.campaign_spec import SelectionMode
from dpal.privacy import Adjacency

Chances = NDArray[np.float64]

_CUTS = 40  # outputs of one release


@dataclass(frozen=True)
class Paths:
    """Chances of everything seen so far in both worlds, one number per way it went."""

    p: Chances
    q: Chances

    def then(self, p: Chances | float, q: Chances | float) -> Paths:
        """After one more release with these chances of its outputs."""
        return Paths(np.outer(self.p, p).ravel(), np.outer(self.q, q).ravel())


@dataclass(frozen=True)
class WorstCase:
    """Deltas of a plan of one-step phases.

    Attributes:
      plan: what is released.
      removing: whether the first world is the one with the record.
      epsilon: at which advantages are added up.
    """

    plan: Plan
    removing: bool
    epsilon: float

    def delta(self) -> float:
        """The larger of what a record of the first cohort and one of the pool may suffer."""
        start = Paths(np.ones(1), np.ones(1))
        return float(max(self._entered(0, start).sum(), self._waiting(1, start).sum()))

    def _waiting(self, phase: int, paths: Paths) -> Chances:
        """A record of the pool, before selection `phase`; one advantage per path."""
        if phase == len(self.plan.phases):
            return self._advantage(paths)
        return self._outputs(phase, list(self.plan.phases[phase].selection.events), paths)

    def _outputs(self, phase: int, events: list, paths: Paths) -> Chances:
        if not events:
            return np.maximum(self._entered(phase, paths), self._waiting(phase + 1, paths))
        first, rest = events[0], events[1:]
        if isinstance(first, RandomizedResponse):
            return np.max([self._answer(phase, pair, paths) for pair in self._sides(first)], axis=0)
        after = self._outputs(phase, rest, paths.then(*self._seen(first)))
        return after.reshape(paths.p.size, -1).sum(axis=1)

    def _answer(self, phase: int, pair: tuple[float, float], paths: Paths) -> Chances:
        p, q = pair
        yes, no = paths.then(p, q), paths.then(1 - p, 1 - q)
        by_chance = np.maximum(self._entered(phase, no), self._waiting(phase + 1, no))
        return self._entered(phase, yes) + by_chance

    def _sides(self, answers: RandomizedResponse) -> list[tuple[float, float]]:
        sides = (answers.above, answers.below)
        if self.plan.spec.target.adjacency is Adjacency.REPLACE_ONE:
            return [(one, other) for one in sides for other in sides]
        return [(one, answers.blank) if self.removing else (answers.blank, one) for one in sides]

    def _entered(self, cohort: int, paths: Paths) -> Chances:
        """A record that has just entered; one advantage per path before."""
        after = paths
        for phase in self.plan.phases[cohort:]:
            # Where nobody sees who entered, the other world's record may still be in the pool.
            counted = self.plan.spec.selection is SelectionMode.HIDDEN and cohort > 0
            if counted and phase.index > cohort:
                for event in phase.selection.events:
                    assert isinstance(event, NoisyThreshold)  # all that a gate releases
                    after = after.then(*self._seen(event))
            after = after.then(*self._trained(phase.training, new=phase.index == cohort))
        return self._advantage(after).reshape(paths.p.size, -1).sum(axis=1)

    def _seen(self, event: NoisyScores | NoisyThreshold) -> tuple[Chances, Chances]:
        """A score moved over its whole range, or a count moved by one."""
        if isinstance(event, NoisyScores):
            inside = np.linspace(0, 1, _CUTS - 1)
            worlds = [_laplace(event.epsilon * (inside - moved)) for moved in (1, 0)]
        else:
            inside = np.linspace(-4, 5, _CUTS - 1) * event.noise_multiplier
            worlds = [ndtr((inside - moved) / event.noise_multiplier) for moved in (1, 0)]
        return self._cut(worlds)

    def _trained(self, training: TrainingPhase, *, new: bool) -> tuple[Chances, Chances]:
        rate = training.sample_rate_new if new else training.sample_rate_old
        sigma = training.noise_multiplier
        inside = np.linspace(-1 - 4 * sigma, 1 + 4 * sigma, _CUTS - 1)
        idle = ndtr(inside / sigma)
        replaced = self.plan.spec.target.adjacency is Adjacency.REPLACE_ONE
        with_record = (1 - rate) * idle + rate * ndtr((inside - 1) / sigma)
        opposite = (1 - rate) * idle + rate * ndtr((inside + 1) / sigma)
        return self._cut([with_record, opposite if replaced else idle])

    def _cut(self, worlds: Sequence[Chances]) -> tuple[Chances, Chances]:
        """Chances between the cuts, the first world's first."""
        first, second = (np.diff(one, prepend=0.0, append=1.0) for one in worlds)
        return (first, second) if self.removing else (second, first)

    def _advantage(self, paths: Paths) -> Chances:
        return np.maximum(0.0, paths.p - math.exp(self.epsilon) * paths.q)


def _laplace(x: Chances) -> Chances:
    return np.where(x > 0, 1 - np.exp(-np.abs(x)) / 2, np.exp(-np.abs(x)) / 2)
