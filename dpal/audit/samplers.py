"""Whether the samplers of a plan's selections draw what is charged."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import chi2

from dpal.accounting.events import LAPLACE_GRID
from dpal.acquisition import noisy_threshold_search, selection
from dpal.audit import hypothesis_tests
from dpal.audit.check_poisson_sampling import BatchMembership, findings_about_batches
from dpal.audit.findings import AuditFinding, Layer, statistical_finding
from dpal.mechanisms import discrete_laplace, randomized_response
from dpal.planning.campaign_plan import Plan
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

_BINS = 64
_FAR = 40.0  # deviations of noise that no count sees
_COINS, _LEAST_RUNS = 4096, 128  # records that toss a coin, and how often they do at least
_OF_SECRET_DRAWS = (
    ("coins / planned chance", "coins fall as the plan does not say"),
    ("variance of how many / coins", "a fixed number is drawn, so records compete"),
    ("variance of who / coins", "some records are drawn more often, or coins are "
     "used twice"),
    ("correlation of two", "the coins of one draw are those of another"),
)  # fmt: skip


def sampler_findings(plan: Plan, *, draws: int, rng: BitSource) -> list[AuditFinding]:
    """Draws from every sampler that selections of the plan use, as in its last selection.

    Args:
      plan: whose selections.
      draws: answers; of slower samplers fewer, in proportion.
      rng: source of random words.
    """
    by_kind = {type(phase.selection): phase.selection for phase in plan.phases}
    return [
        finding for step in by_kind.values() for finding in _sampled(step, draws=draws, rng=rng)
    ]


@singledispatch
def _sampled(step: object, *, draws: int, rng: BitSource) -> list[AuditFinding]:
    raise TypeError(f"{type(step).__name__} has no test of its samplers; write one")


@_sampled.register
def _(step: RandomDraw, *, draws: int, rng: BitSource) -> list[AuditFinding]:
    return []  # reads no record


@_sampled.register
def _(step: Remaining, *, draws: int, rng: BitSource) -> list[AuditFinding]:
    return []  # draws nothing


@_sampled.register
def _(step: SecretRandomDraw, *, draws: int, rng: BitSource) -> list[AuditFinding]:
    # So few that the cap, which the plan counts in delta, is out of reach.
    draw = step.draw
    records = max(1, min(_COINS, int(step.most / draw.chance / 2)))
    is_drawn = np.zeros((max(_LEAST_RUNS, draws // records), records), dtype=np.bool_)
    is_candidate = np.zeros_like(is_drawn)
    rows = np.arange(records, dtype=np.int64)
    for drawn, candidates in zip(is_drawn, is_candidate, strict=True):
        chosen = selection.select_by_coins([rows], step, rng=rng)
        drawn[chosen.rows] = True
        if chosen.candidates is not None:
            candidates[chosen.candidates] = True
    sides = [BatchMembership("secret draws", draw.chance, is_drawn)]
    if draw.candidates < 1:
        chance = (1 - draw.chance) * draw.candidates
        sides.append(BatchMembership("secret candidates", chance, is_candidate))
    return [
        replace(finding, what=f"{side.name}: {what}", likely=likely)
        for side in sides
        for finding, (what, likely) in zip(
            findings_about_batches([side]), _OF_SECRET_DRAWS, strict=True
        )
    ]


@_sampled.register
def _(step: NoisyRanking, *, draws: int, rng: BitSource) -> list[AuditFinding]:
    epsilon = step.scores.epsilon
    noise = discrete_laplace.laplace_noise(draws >> 4, epsilon, rng=rng)
    # |Y| of discrete Laplace noise of ratio w: mean 2 w / (1 - w^2), square 2 w / (1 - w)^2.
    ratio = math.exp(-epsilon / LAPLACE_GRID)
    mean, square = 2 * ratio / (1 - ratio**2), 2 * ratio / (1 - ratio) ** 2
    size = float(np.abs(noise).mean()) / mean
    error = math.sqrt((square - mean**2) / noise.size) / mean
    edges, chances = _laplace_bins(ratio)
    seen = np.histogram(noise, edges)[0]
    return [
        statistical_finding(
            Layer.MECHANISM,
            "noise on scores / planned",
            hypothesis_tests.of_deviation((size - 1) / error),
            expected=f"1 +- {490 * error:.2g} %",
            measured=f"{size:.5f}",
            likely="noise on scores is not scaled by range / epsilon",
            claimed=1.0,
            value=size,
            within=4.9 * error,
        ),
        statistical_finding(
            Layer.MECHANISM,
            "noise on scores is discrete Laplace",
            hypothesis_tests.of_frequencies(seen, chances),
            expected="p > 1e-6",
            measured=f"p = {hypothesis_tests.of_frequencies(seen, chances):.3g}",
            likely="noise on scores is not discrete Laplace",
        ),
    ]


@_sampled.register
def _(step: HiddenGate, *, draws: int, rng: BitSource) -> list[AuditFinding]:
    findings = [_threshold(step, draws >> 10, rng)]
    if starts_at_validation(step):
        findings.append(_confirming(step, draws >> 7, rng))
    return findings


@_sampled.register
def _(step: VisibleAnswers, *, draws: int, rng: BitSource) -> list[AuditFinding]:
    chances, half = step.answers, draws // 2
    said = randomized_response.randomized_responses(
        np.arange(draws) < half, above=chances.above, below=chances.below, rng=rng
    )
    return [
        _threshold(step, draws >> 10, rng),
        _rate("above", said[:half], chances.above),
        _rate("below", said[half:], chances.below),
    ]


def _rate(side: str, said: NDArray[np.bool_], chance: float) -> AuditFinding:
    value = float(said.mean()) / chance
    margin = 4.9 * math.sqrt((1 - chance) / chance / said.size)
    return statistical_finding(
        Layer.MECHANISM,
        f"rate of yes {side} threshold / planned",
        hypothesis_tests.of_count(int(said.sum()), said.size, chance),
        expected=f"1 +- {100 * margin:.2g} %",
        measured=f"{value:.5f}",
        likely="answers are drawn at other rates than the plan charges",
        claimed=1.0,
        value=value,
        within=margin,
    )


def _threshold(step: HiddenGate | VisibleAnswers, searches: int, rng: BitSource) -> AuditFinding:
    """Searches where every count lies one deviation above the aim.

    Each count is then accepted with chance Phi(-1 + 1/2w), w its noise, whatever the counts
    before it; the threshold that is found says which were.
    """
    above = step.aim + round(step.count_noise)
    accepted = accepted_counts(step, above, searches, rng=rng)
    chance = float(ndtr((step.aim - above + 0.5) / step.count_noise))
    value = float(accepted.mean()) / chance
    margin = 4.9 * math.sqrt((1 - chance) / chance / accepted.size)
    return statistical_finding(
        Layer.MECHANISM,
        "hidden counts / planned",
        hypothesis_tests.of_count(int(accepted.sum()), accepted.size, chance),
        expected=f"1 +- {100 * margin:.2g} %",
        measured=f"{value:.4f}",
        likely="noise on counts is not of the planned size",
        claimed=1.0,
        value=value,
        within=margin,
    )


def _confirming(step: HiddenGate, counts: int, rng: BitSource) -> AuditFinding:
    """Counts the same records again and again: the noise's square over the planned one's."""
    keys = noisy_threshold_search.Keys(
        rows=np.arange(step.aim, dtype=np.uint32),
        keys=np.ones(step.aim, dtype=np.uint16),
        bits=step.comparisons,
    )
    limit = step.aim + math.ceil(_FAR * step.confirming_noise)  # all are accepted
    seen = np.array(
        [
            noisy_threshold_search.confirm_threshold(
                keys, 1, limit=limit, count_noise=step.confirming_noise, rng=rng
            ).noisy_count
            for _ in range(counts)
        ]
    )
    planned = step.confirming_noise**2 + 1 / 12  # rounding to whole numbers adds a little
    squares = float(((seen - step.aim) ** 2).sum()) / planned
    chance = 2 * min(chi2.cdf(squares, counts), chi2.sf(squares, counts))
    value = math.sqrt(squares / counts)
    margin = 4.9 / math.sqrt(2 * counts)
    return statistical_finding(
        Layer.MECHANISM,
        "confirming counts' deviation / planned",
        float(min(1.0, chance)),
        expected=f"1 +- {100 * margin:.2g} %",
        measured=f"{value:.4f}",
        likely="noise on counts is not of the planned size",
        claimed=1.0,
        value=value,
        within=margin,
    )


def accepted_counts(
    step: HiddenGate | VisibleAnswers, above: int, searches: int, *, rng: BitSource
) -> NDArray[np.bool_]:
    """Which counts were accepted, (searches, comparisons), with `above` records at the top.

    All other records lie at the bottom, so that every count is `above`.
    """
    keys = noisy_threshold_search.Keys(
        rows=np.arange(above + 1, dtype=np.uint32),
        keys=np.append(np.zeros(1), np.full(above, (1 << step.comparisons) - 1)).astype(np.uint16),
        bits=step.comparisons,
    )
    results = [
        noisy_threshold_search.noisy_threshold(
            keys, aim=step.aim, count_noise=step.count_noise, rng=rng
        )
        for _ in range(searches)
    ]
    # A count that is accepted lets the search go on below: the bit of the result is 0.
    bits = np.arange(step.comparisons)
    return np.asarray(((np.array(results) - 1)[:, None] >> bits & 1) == 0)


def _laplace_bins(ratio: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Edges between whole numbers, and the chance of each bin."""
    scale = -1 / math.log(ratio)
    shares = np.linspace(0, 1, _BINS + 1)[1:-1]
    quantiles = np.where(
        shares < 0.5, scale * np.log(2 * shares), -scale * np.log(2 * (1 - shares))
    )
    inner = np.unique(np.floor(quantiles)) + 0.5
    whole = np.floor(inner)  # the largest number below each edge
    # P(Y <= y) = w^-y / (1 + w) below zero, 1 - w^(y+1) / (1 + w) from there on.
    below = np.where(
        whole < 0,
        ratio ** np.maximum(-whole, 0) / (1 + ratio),
        1 - ratio ** np.maximum(whole + 1, 0) / (1 + ratio),
    )
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    return edges, np.diff(np.concatenate([[0.0], below, [1.0]]))
