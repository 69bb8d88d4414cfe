"""Picks the records of a phase from a stream of scores, as its plan says.

Every way of selecting ends with at most as many records as the query may buy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.accounting.events import LAPLACE_GRID
from dpal.acquisition.highest_of_stream import HighestOfStream
from dpal.acquisition.noisy_threshold_search import (
    Rows,
    Scores,
    collect_keys,
    confirm_threshold,
    fine_keys,
    noisy_threshold,
)
from dpal.acquisition.threshold_search_start import cut_points
from dpal.errors import ParameterError
from dpal.mechanisms.discrete_laplace import laplace_noise
from dpal.mechanisms.poisson_sampling import include, uniform_below
from dpal.mechanisms.randomized_response import randomized_responses
from dpal.planning.selection_steps import (
    HiddenGate,
    NoisyRanking,
    RandomDraw,
    Remaining,
    SecretRandomDraw,
    VisibleAnswers,
    starts_at_validation,
)
from dpal.randomness import BitSource

Scored = Iterable[tuple[Rows, Scores]]

_NOBODY: Rows = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryHistory:
    """What a query knows of the campaign before it.

    Attributes:
      left: records of the pool that are left, by the plan and released counts; public.
      noisy_count: of the records that passed in earlier queries; paid for with their thresholds.
      selected: how many truly passed. Confidential, and only for keeping the cap.
      public_scores: (m,) of public records that would be left as well, in the query's range.
    """

    left: int
    noisy_count: int = 0
    selected: int = 0
    public_scores: Scores = field(default_factory=lambda: np.empty(0))

    def __repr__(self) -> str:
        return "QueryHistory(confidential)"


@dataclass(frozen=True, eq=False, kw_only=True)
class GateCount:
    """What a gate tells later queries: paid for with its threshold.

    Attributes:
      noisy_count: of the records that passed.
      public_passed: positions of the public records that pass the same threshold.
    """

    noisy_count: int
    public_passed: Rows


@dataclass(frozen=True, eq=False)
class Selection:
    """Who is to be labeled. Confidential where selection is hidden.

    Attributes:
      rows: (n,) row numbers, in no particular order; n may fall short of the query.
      retired: rows that said yes beyond the label budget. They leave the pool unlabeled:
        back in it they would answer a second time.
      counted: what a gate counted, where one count accepts its threshold.
      candidates: rows that later queries may select from; None for all that are left.
    """

    rows: Rows
    retired: Rows
    counted: GateCount | None = None
    candidates: Rows | None = None

    def __repr__(self) -> str:
        return "Selection(confidential)"  # wherever it might be printed or logged


@singledispatch
def select(
    step: object,
    scored: Scored,
    count: int,
    *,
    width: float,
    rng: BitSource,
    history: QueryHistory | None = None,
) -> Selection:
    """Draws one selection.

    Args:
      step: how, from a phase's plan.
      scored: batches of row numbers of the unlabeled pool, and their scores in [0, width].
      count: the label budget of the query. Never exceeded, but by a gate whose cap is on the sum
        of all queries, which is not exceeded then.
      width: of the public score range.
      rng: source of random words.
      history: of the campaign, for a gate whose search begins at the validation set's quantile.

    Raises:
      ParameterError: fewer records are offered than a random draw or a ranking needs, or a
        score lies outside of the range. Nothing was released.
    """
    raise ParameterError(f"{type(step).__name__} is no way to select")


@select.register
def _(
    step: RandomDraw,
    scored: Scored,
    count: int,
    *,
    width: float,
    rng: BitSource,
    history: QueryHistory | None = None,
) -> Selection:
    return select_at_random(
        (rows for rows, _ in scored), count, candidates=step.candidates, rng=rng
    )


@select.register
def _(
    step: SecretRandomDraw,
    scored: Scored,
    count: int,
    *,
    width: float,
    rng: BitSource,
    history: QueryHistory | None = None,
) -> Selection:
    return select_by_coins((rows for rows, _ in scored), step, rng=rng)


@select.register
def _(
    step: Remaining,
    scored: Scored,
    count: int,
    *,
    width: float,
    rng: BitSource,
    history: QueryHistory | None = None,
) -> Selection:
    """Everybody who is left: how many they are may differ from the plan's number."""
    return Selection(np.concatenate([_NOBODY, *(rows for rows, _ in scored)]), _NOBODY)


@select.register
def _(
    step: NoisyRanking,
    scored: Scored,
    count: int,
    *,
    width: float,
    rng: BitSource,
    history: QueryHistory | None = None,
) -> Selection:
    """Every score is rounded to a grid over [0, width] and gets discrete Laplace noise.

    The noise has scale width / epsilon whatever the other records are; the ranking only
    processes noisy values.
    """
    check.positive(width=width)
    best = _HighestKeys(count)
    for rows, scores in scored:
        # The range is the sensitivity: a score outside of it would not be protected.
        if not ((scores >= 0) & (scores <= width)).all():
            raise ParameterError.before_release(f"a score lies outside of [0, {width:g}]")
        on_grid = np.rint(scores * (LAPLACE_GRID / width)).astype(np.int64)
        noisy = np.minimum(on_grid, LAPLACE_GRID)
        noisy += laplace_noise(rows.size, step.scores.epsilon, rng=rng)
        best.offer(noisy, rows, rng=rng)
    return Selection(best.rows(), _NOBODY)


@select.register
def _(
    step: HiddenGate,
    scored: Scored,
    count: int,
    *,
    width: float,
    rng: BitSource,
    history: QueryHistory | None = None,
) -> Selection:
    """Whoever passes the gate is selected, whatever the others do.

    A shortage is not filled up: who fills it would depend on how many others passed.
    """
    if starts_at_validation(step):
        return _through_confirmed_gate(step, scored, count, width, rng, history)
    keys = collect_keys(scored, width=width, bits=step.comparisons, rng=rng)
    threshold = noisy_threshold(keys, aim=step.aim, count_noise=step.count_noise, rng=rng)
    passed = keys.rows[keys.above(threshold)].astype(np.int64)
    # More than the budget pass with a chance that the plan counts as delta.
    return Selection(_some(passed, count, rng=rng), _NOBODY)


def _through_confirmed_gate(
    step: HiddenGate,
    scored: Scored,
    count: int,
    width: float,
    rng: BitSource,
    history: QueryHistory | None,
) -> Selection:
    """Searches from the validation set's quantile, and counts once more who passes.

    Raises:
      ParameterError: it is not said what was counted before. Nothing was released.
    """
    if history is None:
        raise ParameterError.before_release(
            "this gate aims by what earlier queries counted, and was not told"
        )
    aim, limit = step.still_to_pass(history.noisy_count)
    share = min(0.999, max(1, aim) / max(2, history.left))
    public = fine_keys(history.public_scores, width=width, rng=rng)
    cuts = cut_points(public, share=share, bits=step.comparisons)
    keys = collect_keys(scored, width=width, bits=step.comparisons, rng=rng, cuts=cuts)
    found = noisy_threshold(keys, aim=aim, count_noise=step.count_noise, rng=rng)
    accepted = confirm_threshold(
        keys, found, limit=limit, count_noise=step.confirming_noise, rng=rng
    )
    passed = keys.rows[keys.above(accepted.threshold)].astype(np.int64)
    public_keys = np.searchsorted(cuts, public, side="right")
    counted = GateCount(
        noisy_count=accepted.noisy_count,
        public_passed=np.flatnonzero(public_keys >= accepted.threshold),
    )
    # More than the cap pass with a chance that the plan counts as delta.
    room = step.room(history.selected, count)
    return Selection(_some(passed, room, rng=rng), _NOBODY, counted)


@select.register
def _(
    step: VisibleAnswers,
    scored: Scored,
    count: int,
    *,
    width: float,
    rng: BitSource,
    history: QueryHistory | None = None,
) -> Selection:
    """Every record answers by itself; too many are retired, too few filled up by chance."""
    keys = collect_keys(scored, width=width, bits=step.comparisons, rng=rng)
    threshold = noisy_threshold(keys, aim=step.aim, count_noise=step.count_noise, rng=rng)
    said_yes = randomized_responses(
        keys.above(threshold), above=step.answers.above, below=step.answers.below, rng=rng
    )
    rows = keys.rows.astype(np.int64)
    yes, no = rows[said_yes], rows[~said_yes]
    if yes.size > count:
        chosen = _some(yes, count, rng=rng)
        return Selection(chosen, np.setdiff1d(yes, chosen, assume_unique=True))
    return Selection(np.concatenate([yes, _some(no, count - yes.size, rng=rng)]), _NOBODY)


def select_at_random(
    eligible: Iterable[Rows], count: int, *, candidates: int | None = None, rng: BitSource
) -> Selection:
    """Picks `count` rows uniformly without replacement. Costs nothing: no record is read.

    Args:
      eligible: batches of row numbers.
      count: rows to pick.
      candidates: further rows to pick, that later queries select from; None for all others.
      rng: source of random words.

    Raises:
      ParameterError: fewer rows are eligible.
    """
    best = _HighestKeys(count + (candidates or 0))
    for rows in eligible:
        best.offer(np.zeros(rows.size, dtype=np.int64), rows, rng=rng)
    if candidates is None:
        return Selection(best.rows(), _NOBODY)
    picked = _some(best.rows(), count + candidates, rng=rng)
    return Selection(picked[:count], _NOBODY, candidates=picked[count:])


def select_by_coins(
    eligible: Iterable[Rows], step: SecretRandomDraw, *, rng: BitSource
) -> Selection:
    """Every row tosses coins of its own. Reads no record; how many are drawn is a secret, too.

    Args:
      eligible: batches of row numbers.
      step: the chances of each coin, and how many may be labeled.
      rng: source of random words.
    """
    drawn, candidates = [_NOBODY], [_NOBODY]
    has_candidates = step.draw.candidates < 1
    for rows in eligible:
        taken = include(rows.size, step.draw.chance, rng=rng)
        drawn.append(rows[taken])
        if has_candidates:
            left = np.delete(rows, taken)
            candidates.append(left[include(left.size, step.draw.candidates, rng=rng)])
    # More than the cap are drawn with a chance that the plan counts as delta.
    return Selection(
        _some(np.concatenate(drawn).astype(np.int64), step.most, rng=rng),
        _NOBODY,
        candidates=np.concatenate(candidates).astype(np.int64) if has_candidates else None,
    )


def _some(rows: Rows, count: int, *, rng: BitSource) -> Rows:
    """At most `count` of the rows, uniformly without replacement (Fisher & Yates)."""
    if rows.size <= count:
        return rows
    rows = rows.copy()
    offsets = uniform_below((rows.size - np.arange(count)).astype(np.uint64), rng=rng).astype(
        np.int64
    )
    for place, offset in enumerate(offsets):
        other = place + offset
        rows[place], rows[other] = rows[other], rows[place]
    return rows[:count]


class _HighestKeys:
    """The `count` highest keys seen, ties broken by fresh random words."""

    def __init__(self, count: int) -> None:
        check.at_least(1, count=count)
        self._count = count
        self._highest = HighestOfStream(count)

    def offer(self, keys: NDArray[np.int64], rows: Rows, *, rng: BitSource) -> None:
        self._highest.offer(keys, rng.words(rows.size), rows)

    def rows(self) -> Rows:
        _, _, rows = self._highest.columns() or (_NOBODY, _NOBODY, _NOBODY)
        if rows.size < self._count:
            # How many are left may be confidential.
            raise ParameterError.before_release(
                f"{self._count} records are to be selected and fewer are unlabeled; lower "
                "schedule.queries"
            )
        return rows
