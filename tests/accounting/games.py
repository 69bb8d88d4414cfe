"""Campaigns so small that everything they can release is enumerated.

Written from the text of docs/guarantee.md and not from the library's code: real pools of
three records, real selections with their shortages and surpluses, real batches. What is
released is cut into few bins, which is post-processing: true deltas only fall by it.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpal.planning.campaign_plan import Phase, Plan, TrainingPhase
from dpal.planning.selection_steps import HiddenGate, NoisyRanking, RandomDraw, VisibleAnswers

POOL = (0, 1, 2)  # record 0 is the one whose content differs
LABELED, WAITING, OUT = "0", "-", "x"  # states of a record; a digit is its cohort
State = tuple[str, ...]
Transcript = tuple[object, ...]
Step = Iterator[tuple[float, object, State]]  # chance, what is released, the state after
Chosen = tuple[float, object, list[int], list[int]]  # chance, released, labeled, retired
Counting = VisibleAnswers | HiddenGate
Law = dict[Transcript, float]

_SCORE_EDGES = (-math.inf, 0.25, 0.75, math.inf)
_OUTPUT_EDGES = (-math.inf, -1.5, -0.5, 0.5, 1.5, math.inf)


@dataclass(frozen=True)
class Content:
    """What record 0 holds in one world.

    Attributes:
      gradient: what it adds to a batch that it joins.
      wanted: for the first query, and for the second one after a low and after a high
        output of training: whether its score is high.
      blank: whether it is a blank record, which answers at a rate of its own.
    """

    gradient: int
    wanted: tuple[bool, bool, bool] = (False, False, False)
    blank: bool = False

    def score(self, phase: int, transcript: Transcript) -> int:
        """Its score; later ones may depend on everything released before."""
        if phase == 1:
            return int(self.wanted[0])
        output = transcript[-1]
        assert isinstance(output, int)
        return int(self.wanted[2 if output >= 2 else 1])


def law(plan: Plan, content: Content, *, initial: int) -> Law:
    """Chances of all transcripts of a campaign.

    Args:
      plan: of three records; selections label one or more of them.
      content: of record 0.
      initial: the record labeled at random before phase 0.
    """
    start = tuple(LABELED if record == initial else WAITING for record in POOL)
    beliefs: dict[Transcript, dict[State, float]] = {(): {start: 1.0}}
    for phase in plan.phases:
        if phase.index:
            beliefs = _advance(beliefs, partial(_select, phase, content))
        for _ in range(phase.training.steps):
            beliefs = _advance(beliefs, partial(_train, phase, content))
    return {transcript: sum(states.values()) for transcript, states in beliefs.items()}


def delta(p: Law, q: Law, epsilons: NDArray[np.float64]) -> list[float]:
    """The largest advantage over all events, H(P, Q; epsilon), at every epsilon."""
    with_record = np.fromiter(p.values(), np.float64, len(p))
    without = np.array([q.get(transcript, 0.0) for transcript in p])
    return [float(np.maximum(0.0, with_record - np.exp(x) * without).sum()) for x in epsilons]


def _advance(
    beliefs: dict[Transcript, dict[State, float]], step: Callable[[State, Transcript], Step]
) -> dict[Transcript, dict[State, float]]:
    after: dict[Transcript, dict[State, float]] = defaultdict(lambda: defaultdict(float))
    for transcript, states in beliefs.items():
        for state, known in states.items():
            for chance, output, then in step(state, transcript):
                after[(*transcript, output)][then] += known * chance
    return after


def _select(phase: Phase, content: Content, state: State, transcript: Transcript) -> Step:
    pool = [record for record in POOL if state[record] == WAITING]
    scores = {1: 1, 2: 0, 0: content.score(phase.index, transcript)}
    steps: Iterator[Chosen]
    match phase.selection:
        case NoisyRanking():
            steps = _rank(phase.selection, scores, pool)
        case VisibleAnswers():
            steps = _ask(phase.selection, phase.cohort_size, content, scores, pool)
        case HiddenGate():
            steps = _gate(phase.selection, phase.cohort_size, scores, pool)
        case RandomDraw():
            raise AssertionError("games are of selections that look at scores")
    for chance, output, chosen, out in steps:
        then = list(state)
        for record in chosen:
            then[record] = str(phase.index)
        for record in out:
            then[record] = OUT
        yield chance, output, tuple(then)


def _rank(selection: NoisyRanking, scores: dict[int, int], pool: list[int]) -> Iterator[Chosen]:
    """Every noisy score is released; the highest is labeled, ties by chance."""
    epsilon = selection.scores.epsilon
    laws = [laplace(_SCORE_EDGES, scores[record], epsilon) for record in pool]
    for noisy in itertools.product(range(len(_SCORE_EDGES) - 1), repeat=len(pool)):
        chance = math.prod(one[at] for one, at in zip(laws, noisy, strict=True))
        best = [r for r, at in zip(pool, noisy, strict=True) if at == max(noisy)]
        for record in best:
            yield chance / len(best), (noisy, record), [record], []


def _ask(
    selection: VisibleAnswers,
    size: int,
    content: Content,
    scores: dict[int, int],
    pool: list[int],
) -> Iterator[Chosen]:
    """Answers are released, and who is labeled: of those who said yes, or by chance."""
    answers = selection.answers
    for at, seen in _counts(selection, scores, pool):
        # Too many above: the threshold moves up, and nobody's score is above it.
        high = {r: scores[r] and _accepted(selection, at) for r in pool}
        rates = [answers.above if high[r] else answers.below for r in pool]
        if content.blank and 0 in pool:
            rates[pool.index(0)] = answers.blank
        for said in itertools.product((True, False), repeat=len(pool)):
            chance = seen * math.prod(
                p if yes else 1 - p for p, yes in zip(rates, said, strict=True)
            )
            willing = [r for r, yes in zip(pool, said, strict=True) if yes]
            groups = list(itertools.combinations(willing or pool, min(size, len(willing or pool))))
            for group in groups:
                out = [r for r in willing if r not in group]
                yield chance / len(groups), (at, said, group), list(group), out


def _gate(
    selection: HiddenGate, size: int, scores: dict[int, int], pool: list[int]
) -> Iterator[Chosen]:
    """The threshold is released, as it is charged; nothing of who passes is."""
    for at, seen in _counts(selection, scores, pool):
        passing = [r for r in pool if scores[r] and _accepted(selection, at)]
        groups = list(itertools.combinations(passing, min(size, len(passing))))
        for group in groups:
            yield seen / len(groups), at, list(group), []


def _counts(
    selection: Counting, scores: dict[int, int], pool: list[int]
) -> Iterator[tuple[int, float]]:
    """The noisy count of high scores, in bins."""
    count = sum(scores[record] for record in pool)
    return enumerate(normal(_count_edges(selection), count, selection.count_noise))


def _accepted(selection: Counting, at: int) -> bool:
    """Whether the threshold that was counted at is taken: no more than the aim lie above."""
    return _count_edges(selection)[at + 1] <= selection.aim + 0.5


def _count_edges(selection: Counting) -> tuple[float, ...]:
    return (-math.inf, 0.5, max(1.5, selection.aim + 0.5), math.inf)


def _train(phase: Phase, content: Content, state: State, transcript: Transcript) -> Step:
    """One noisy sum of the gradients of whoever joins the batch."""
    gradients = (content.gradient, 1, -1)
    members = tuple(
        (gradients[record], state[record] == str(phase.index))
        for record in POOL
        if state[record].isdigit() and gradients[record]
    )
    for at, chance in enumerate(_outputs(phase.training, members)):
        yield chance, at, state


@cache
def _outputs(training: TrainingPhase, members: tuple[tuple[int, bool], ...]) -> list[float]:
    """Chances of the outputs of a step; members are gradients and whether they are new."""
    sums = {0: 1.0}
    for gradient, new in members:
        rate = training.sample_rate_new if new else training.sample_rate_old
        joined: dict[int, float] = defaultdict(float)
        for total, chance in sums.items():
            joined[total] += chance * (1 - rate)
            joined[total + gradient] += chance * rate
        sums = joined
    parts = [
        chance * np.array(normal(_OUTPUT_EDGES, total, training.noise_multiplier))
        for total, chance in sums.items()
    ]
    return [float(one) for one in np.sum(parts, axis=0)]


@cache
def normal(edges: tuple[float, ...], mean: float, sigma: float) -> list[float]:
    """Chances of the intervals between edges, of Gaussian noise around a mean."""
    return [float(one) for one in np.diff([ndtr((edge - mean) / sigma) for edge in edges])]


@cache
def laplace(edges: tuple[float, ...], mean: float, epsilon: float) -> list[float]:
    """The same, of Laplace noise of scale 1 / epsilon."""
    below = [
        1 - math.exp(-epsilon * (edge - mean)) / 2
        if edge > mean
        else math.exp(epsilon * (edge - mean)) / 2
        for edge in edges
    ]
    return [float(one) for one in np.diff(below)]
