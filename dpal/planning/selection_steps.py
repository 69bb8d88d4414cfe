"""How a phase picks its records: who sees it, what it releases, what it may not exceed.

Everything here is public and fixed before the first record is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeGuard

import numpy as np
import scipy

from dpal.accounting.cohort_spending import epsilon_of_thresholds
from dpal.accounting.events import (
    Event,
    NoisyScores,
    NoisyThreshold,
    RandomizedResponse,
    SecretDraw,
)
from dpal.accounting.safe_search import first_true, smallest_safe
from dpal.accounting.secret_draws_amplification import drawn_epsilon, exceeding_chance
from dpal.canonical import LATER
from dpal.errors import ParameterError
from dpal.mechanisms.randomized_response import anchored_rates
from dpal.planning.campaign_spec import CampaignSpec, LabelCap, SelectionMode, ThresholdStart
from dpal.planning.hidden_gate import COMPARISONS, CONFIRMING_SHARE, CappedQueries
from dpal.privacy import Adjacency, PrivacyTarget

KEY_BITS = 16  # at most this many comparisons find a threshold
LEAST_KEY_BITS = 5  # one for the score, the others break ties
_OVERFLOW_SHARE = 0.01  # of delta, for all thresholds of a campaign together
# Noise multipliers of a threshold; 4 costs about 1 % of the noise of training at epsilon 8.
_GATE_NOISE, _ANSWER_NOISE = (4.0, 40.0), (10.0, 60.0)
_THRESHOLD_SHARE = 0.5  # of epsilon, for the thresholds of gates alone; jointly it is far less
_SMALL_QUERY_SHARE = 0.8  # likewise, where a query would otherwise be too small
_RESERVE = 0.05  # share of a query that a gate wants to keep as reserve, at most
_SMALL_QUERY_RESERVE = 0.25  # above it, less noise than usual is worth its price
_CANDIDATES_SHARE = 0.8  # of epsilon, where all others train unlabeled
_LEAST_GAIN = 0.5  # of a query must be left after the reserve


@dataclass(frozen=True, kw_only=True)
class RandomDraw:
    """Uniform without replacement. Costs nothing: no record is read.

    Attributes:
      candidates: records that later queries may select from, drawn likewise; None for all others.
    """

    candidates: int | None = field(default=None, metadata=LATER)

    @property
    def clips_scores(self) -> bool:
        """Whether scores are cut at a public bound, for noise of a smaller scale."""
        return False

    @property
    def events(self) -> tuple[Event, ...]:
        """What it releases about a record of the pool."""
        return ()


@dataclass(frozen=True, kw_only=True)
class SecretRandomDraw:
    """Every record of the pool tosses a coin of its own; nobody outside learns how it fell.

    Costs nothing, and makes what the drawn lose cheaper, as long as nothing tells who was drawn
    or how many. So many are drawn on average as the phase's cohort has records. Of the others the
    coins may make some the candidates that later queries select from.

    Attributes:
      draw: the chances of each coin, and that of drawing more than `most`.
      most: records that are labeled at most; more are drawn with a chance that the plan counts.
    """

    draw: SecretDraw
    most: int

    @property
    def clips_scores(self) -> bool:
        """Whether scores are cut at a public bound, for noise of a smaller scale."""
        return False

    @property
    def events(self) -> tuple[Event, ...]:
        """What it releases about a record of the pool."""
        return (self.draw,)


@dataclass(frozen=True, kw_only=True)
class NoisyRanking:
    """The highest noisy scores; they, and the ids, may be seen by anyone."""

    scores: NoisyScores

    @property
    def clips_scores(self) -> bool:
        """Whether scores are cut at a public bound, for noise of a smaller scale."""
        return True

    @property
    def events(self) -> tuple[Event, ...]:
        """What it releases about a record of the pool."""
        return (self.scores,)


@dataclass(frozen=True, kw_only=True)
class _ByThreshold:
    """Compares every record's score with one threshold.

    Attributes:
      threshold: what finding the threshold costs.
      comparisons: noisy counts that find it.
      aim: records that should lie above it.
    """

    threshold: NoisyThreshold
    comparisons: int
    aim: int

    @property
    def clips_scores(self) -> bool:
        """Whether scores are cut at a public bound, for noise of a smaller scale."""
        return False

    @property
    def count_noise(self) -> float:
        """Standard deviation of the noise on one count."""
        return self.threshold.noise_multiplier * math.sqrt(self.comparisons)


@dataclass(frozen=True, kw_only=True)
class HiddenGate(_ByThreshold):
    """Every record passes or not by its own score; nobody outside learns which.

    More than may be bought pass with a chance below `threshold.failure_probability` only. In a
    plain search `aim` is the query's size less a reserve, and every comparison may accept a
    threshold. In one that starts at the validation set's quantile, comparisons look for a
    threshold, and one more count accepts it, or nobody passes.

    Attributes:
      start: where the search begins.
      label_cap: what may not be exceeded: each query, or the sum of all.
      confirming_share: of the threshold's precision (1 / variance), for the count that accepts.
      aim_in_all: records that should have passed with all queries that share the cap, so far.
      limit: up to which noisy count, added to those of earlier queries, a threshold is accepted.
      cap: records that may pass, in all queries that share it.
    """

    start: ThresholdStart = field(default=ThresholdStart.PLAIN, metadata=LATER)
    label_cap: LabelCap = field(default=LabelCap.QUERY, metadata=LATER)
    confirming_share: float = field(default=0.0, metadata=LATER)
    aim_in_all: int = field(default=0, metadata=LATER)
    limit: int = field(default=0, metadata=LATER)
    cap: int = field(default=0, metadata=LATER)

    def __post_init__(self) -> None:
        confirms = self.start is ThresholdStart.VALIDATION
        if confirms and not 0 < self.confirming_share < 1:
            raise ParameterError(
                f"a confirming count has a share of its threshold's precision, more than nothing "
                f"and less than all, and not {self.confirming_share:g}"
            )

    @property
    def count_noise(self) -> float:
        """Standard deviation of the noise on one comparison."""
        multiplier = self.threshold.noise_multiplier
        return multiplier * math.sqrt(self.comparisons / (1 - self.confirming_share))

    @property
    def confirming_noise(self) -> float:
        """Standard deviation of the noise on the count that accepts."""
        return self.threshold.noise_multiplier / math.sqrt(self.confirming_share)

    @property
    def reserve(self) -> int:
        """Labels below the cap at which thresholds are no longer accepted."""
        return self.cap - self.limit

    def still_to_pass(self, noisy_count: int) -> tuple[int, int]:
        """What the search aims at, and the count up to which a threshold is accepted.

        Args:
          noisy_count: of the records that passed in all earlier queries, as it was released.
            The number that truly passed would be an unpaid release.
        """
        earlier = noisy_count if self.label_cap is LabelCap.SUM else 0
        return self.aim_in_all - earlier, self.limit - earlier

    def room(self, selected: int, query: int) -> int:
        """Records that may be labeled at most, by the true number of those selected earlier.

        It matters with the chance only that the plan counts as delta.
        """
        return max(0, self.cap - selected) if self.label_cap is LabelCap.SUM else query

    @property
    def events(self) -> tuple[Event, ...]:
        """What it releases about a record of the pool."""
        return (self.threshold,)


@dataclass(frozen=True, kw_only=True)
class VisibleAnswers(_ByThreshold):
    """Every record answers yes or no by itself; ids may be seen by anyone.

    Attributes:
      answers: chances of yes, above the threshold, below it, and of a blank record.
    """

    answers: RandomizedResponse

    @property
    def events(self) -> tuple[Event, ...]:
        """What it releases about a record of the pool."""
        return (self.threshold, self.answers)


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """Takes all records that nobody labeled; a released model labels them, and nobody is asked.

    Costs nothing: who is left follows from the selections before.

    Attributes:
      pseudo_labels: always true; tells it apart in the record of a plan.
    """

    pseudo_labels: bool = True

    @property
    def clips_scores(self) -> bool:
        """Whether scores are cut at a public bound, for noise of a smaller scale."""
        return False

    @property
    def events(self) -> tuple[Event, ...]:
        """What it releases about a record of the pool."""
        return ()


SelectionStep = (
    RandomDraw | SecretRandomDraw | NoisyRanking | HiddenGate | VisibleAnswers | Remaining
)


def starts_at_validation(step: SelectionStep) -> TypeGuard[HiddenGate]:
    """Whether a search begins at the validation set's quantile, and so asks for its scores."""
    return isinstance(step, HiddenGate) and step.start is ThresholdStart.VALIDATION


def shares_its_cap(step: SelectionStep) -> TypeGuard[HiddenGate]:
    """Whether a query may have more records than asked for, if the others have fewer."""
    return isinstance(step, HiddenGate) and step.label_cap is LabelCap.SUM


def design_selections(spec: CampaignSpec) -> tuple[SelectionStep, ...]:
    """Decides how every phase selects; phase 0 is always random.

    Raises:
      ParameterError: a query is too small for the mode.
    """
    at_random = _secret_draw if spec.secret_draw else _open_draw
    design = at_random if spec.acquisition.is_random else _DESIGNS[spec.selection]
    queries = range(1, len(spec.schedule.cohort_sizes))
    return (at_random(spec, 0), *(design(spec, phase) for phase in queries))


def expected_precision(answers: RandomizedResponse, share: float, above: float) -> float:
    """Expected share of the selected that are among the highest-scored `share` of the pool.

    Args:
      answers: chances of yes.
      share: selected records over the pool's.
      above: share of the pool above the threshold.
    """
    best = answers.above * min(above, share) + answers.below * max(0.0, share - above)
    return best / share


def _open_draw(spec: CampaignSpec, phase: int) -> RandomDraw:
    return RandomDraw(candidates=None if phase else spec.candidates)


def _secret_draw(spec: CampaignSpec, phase: int) -> SecretRandomDraw:
    """Coins that draw as many as are planned on average, and a cap far enough above."""
    sizes = spec.schedule.cohort_sizes
    size, left = sizes[phase], spec.pool_size - sum(sizes[:phase])
    draws = len(sizes) if spec.acquisition.is_random else 1
    failure = _OVERFLOW_SHARE * spec.target.delta / draws
    # However a record's own coin falls, at most `most` are drawn if fewer others are. Each of
    # the others enters in this phase with chance size / pool: no earlier coin drew it, this does.
    pool = spec.pool_size

    def is_enough(most: int) -> bool:
        return exceeding_chance(most, pool=pool, size=size) <= failure

    most = min(pool, first_true(is_enough, low=size, guess=size + round(6 * size**0.5)))
    candidates = 1.0
    if spec.candidates is not None and not phase:
        candidates = spec.candidates / (left - size)
    draw = SecretDraw(chance=size / left, failure_probability=failure, candidates=candidates)
    return SecretRandomDraw(draw=draw, most=most)


def _selected_target(spec: CampaignSpec) -> PrivacyTarget:
    """What is promised to those whom queries may select, if that is a secret of coins."""
    if not (spec.secret_draw and spec.candidates is not None):
        return spec.target
    chance = (spec.schedule.initial + spec.candidates) / spec.pool_size
    within = drawn_epsilon(spec.target.epsilon, chance)
    # Where the others train unlabeled, they have their part of it.
    share = 1.0 if spec.self_training is None else _CANDIDATES_SHARE
    return replace(spec.target, epsilon=share * within)


def _ranking(spec: CampaignSpec, phase: int) -> NoisyRanking:
    queries = len(spec.schedule.queries)
    return NoisyRanking(scores=NoisyScores(epsilon=spec.selection_epsilon / queries))


def _gate(spec: CampaignSpec, phase: int) -> HiddenGate:
    if spec.threshold_start is ThresholdStart.PLAIN:
        return _plain_gate(spec, phase)
    return _confirmed_gate(spec, phase)


def _confirmed_gate(spec: CampaignSpec, phase: int) -> HiddenGate:
    """A gate whose reserve covers one count, and is shared by all queries where their cap is."""
    queries, sum_is_capped = spec.schedule.queries, spec.label_cap is LabelCap.SUM
    in_all = _OVERFLOW_SHARE * spec.target.delta
    failure = in_all / len(queries)
    capped = CappedQueries(
        sizes=queries if sum_is_capped else queries[phase - 1 : phase],
        failure=failure,
        failure_in_all=in_all,
    )
    noise = spec.threshold_noise or _confirmed_noise(capped, len(queries), _selected_target(spec))
    if not capped.loss(noise) <= (1 - _LEAST_GAIN) * capped.cap:
        raise _too_small(spec, phase, capped, noise)
    aims = [0, *capped.aims(noise)]
    position = phase if sum_is_capped else 1
    return HiddenGate(
        threshold=NoisyThreshold(noise_multiplier=noise, failure_probability=failure),
        comparisons=COMPARISONS,
        aim=aims[position] - aims[position - 1],
        start=spec.threshold_start,
        label_cap=spec.label_cap,
        confirming_share=CONFIRMING_SHARE,
        aim_in_all=aims[position],
        limit=capped.cap - capped.reserve(noise),
        cap=capped.cap,
    )


def _confirmed_noise(capped: CappedQueries, queries: int, target: PrivacyTarget) -> float:
    """As little noise as queries need, and as much as the promise wants."""
    usual = float(np.clip(capped.noise_for(_RESERVE * capped.cap), *_GATE_NOISE))
    wished = min(usual, capped.noise_for(_SMALL_QUERY_RESERVE * capped.cap))
    noise = max(wished, _affordable_noise(queries, capped.failure, target, _THRESHOLD_SHARE))
    most = (1 - _LEAST_GAIN) * capped.cap
    if capped.loss(noise) > most:
        least = _affordable_noise(queries, capped.failure, target, _SMALL_QUERY_SHARE)
        noise = max(capped.noise_for(most), least)
    return noise


def _too_small(
    spec: CampaignSpec, phase: int, capped: CappedQueries, noise: float
) -> ParameterError:
    least = math.ceil(capped.loss(noise) / (1 - _LEAST_GAIN))
    sum_is_capped = spec.label_cap is LabelCap.SUM
    asked = f"query {phase} asks"
    if sum_is_capped:
        asked = "the only query asks" if len(capped.sizes) == 1 else "the queries together ask"
    ways = [f"ask for {least:,} or more"] if least <= spec.pool_size else []
    if spec.threshold_noise is not None:
        ways.append("lower privacy.threshold_noise")
    else:
        ways.append("raise privacy.epsilon")
    if not sum_is_capped:
        ways.append("use privacy.label_cap sum")
    ways.append("select visible")
    return ParameterError(
        f"{asked} for {capped.cap:,} labels, and hidden selection keeps {capped.loss(noise):,} in "
        f"reserve at a threshold noise of {noise:.3g}, which must be half of what is asked for or "
        f"less; {', or '.join(ways)}"
    )


def _plain_gate(spec: CampaignSpec, phase: int) -> HiddenGate:
    """Noise small enough for the query and a reserve large enough for the noise."""
    size, comparisons = spec.schedule.cohort_sizes[phase], _comparisons(spec.pool_size)
    failure = _OVERFLOW_SHARE * spec.target.delta / len(spec.schedule.queries)
    # Each accepted comparison may err; together they stay below `failure`.
    deviations = -float(scipy.special.ndtri(failure / comparisons))
    wished = _RESERVE * size / deviations / math.sqrt(comparisons)
    queries = len(spec.schedule.queries)
    usual = float(np.clip(wished, *_GATE_NOISE))
    affordable = _affordable_noise(queries, failure, spec.target, _THRESHOLD_SHARE)
    noise = spec.threshold_noise or max(usual, affordable)
    # One more: in the neighbouring world one more record may lie above.
    reserve = math.ceil(deviations * noise * math.sqrt(comparisons)) + 1
    if size - reserve < _LEAST_GAIN * size:
        least = math.ceil(reserve / _LEAST_GAIN)
        ways = [f"ask for {least:,} or more at once"] if least <= spec.pool_size else []
        if spec.threshold_noise is not None and spec.threshold_noise > affordable:
            ways.append("lower privacy.threshold_noise")
        elif affordable > usual:
            ways.append("raise privacy.epsilon")
        ways.append("select visible")
        raise ParameterError(
            f"query {phase} asks for {size:,} labels, and hidden selection keeps "
            f"{reserve:,} in reserve at a threshold noise of {noise:.3g}, which must be half of "
            f"the query or less; {', or '.join(ways)}"
        )
    return HiddenGate(
        threshold=NoisyThreshold(noise_multiplier=noise, failure_probability=failure),
        comparisons=comparisons,
        aim=size - reserve,
    )


@lru_cache(maxsize=64)
def _affordable_noise(queries: int, failure: float, target: PrivacyTarget, share: float) -> float:
    """Noise at which all thresholds of a campaign, alone, cost no more than a share of epsilon."""

    def cost(noise: float) -> float:
        threshold = NoisyThreshold(noise_multiplier=noise, failure_probability=failure)
        return epsilon_of_thresholds([threshold] * queries, target)

    return smallest_safe(cost, share * target.epsilon, low=1.0)


def _answers(spec: CampaignSpec, phase: int) -> VisibleAnswers:
    """Loss grows from query to query: "no" costs little, so paths lose about the last one's."""
    sizes, queries = spec.schedule.cohort_sizes, len(spec.schedule.queries)
    left = spec.pool_size - sum(sizes[:phase])
    epsilon = spec.selection_epsilon * phase / queries
    if spec.target.adjacency is Adjacency.REPLACE_ONE:
        epsilon /= 2  # both worlds have a record, one above and one below at worst
    answers, above = _best_answers(epsilon, sizes[phase] / left)
    comparisons = _comparisons(spec.pool_size)
    aim = max(1, round(above * left))
    wished = 0.1 * aim / math.sqrt(comparisons)
    noise = spec.threshold_noise or float(np.clip(wished, *_ANSWER_NOISE))
    return VisibleAnswers(
        threshold=NoisyThreshold(noise_multiplier=noise),
        comparisons=comparisons,
        aim=aim,
        answers=answers,
    )


def _best_answers(epsilon: float, share: float) -> tuple[RandomizedResponse, float]:
    """The anchor that selects `share` of the pool with the most of its highest-scored.

    Returns:
      The chances of yes, and the share of the pool that should lie above the threshold.
    """
    best: tuple[float, RandomizedResponse, float] | None = None
    for blank in share * np.geomspace(math.exp(-epsilon), math.exp(epsilon), 201):
        if not 0 < blank < 1:
            continue
        above, below = anchored_rates(epsilon, float(blank))
        if not below < share < above < 1 or below <= 0:
            continue
        answers = RandomizedResponse(above=above, below=below, blank=float(blank))
        passing = (share - below) / (above - below)
        precision = expected_precision(answers, share, passing)
        if best is None or precision > best[0]:
            best = (precision, answers, passing)
    if best is None:
        raise ParameterError(
            f"visible selection at epsilon {epsilon:.3g} cannot pick {share:.1%} of "
            "the records that are left; raise privacy.selection_epsilon or use acquisition random"
        )
    return best[1], best[2]


def _comparisons(pool_size: int) -> int:
    """Halvings that tell single records of a pool apart, and no more."""
    return min(KEY_BITS, max(LEAST_KEY_BITS, math.ceil(math.log2(pool_size)) + 2))


_DESIGNS: dict[SelectionMode, Callable[[CampaignSpec, int], SelectionStep]] = {
    SelectionMode.PAPER: _ranking,
    SelectionMode.HIDDEN: _gate,
    SelectionMode.VISIBLE: _answers,
}
