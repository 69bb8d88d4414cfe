"""What is released has the law that is charged. Every test is shown to catch a wrong law.

The bit source repeats, so a test fails always or never. Had it been drawn afresh, a right
sampler would fail a comparison once in a million times (FALSE_ALARM), and there are about
forty comparisons.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.accounting.votes.noisy_argmax_chances import plurality_law
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.mechanisms import coins
from dpal.mechanisms.gaussian import STEPS
from dpal.randomness import secure
from dpal.voting import draw_noisy_outcomes
from dpal.voting.ballots import Ballots, Choices
from dpal.voting.draw_noisy_outcomes import UNANSWERED, Released, release, winning_sets
from tests.conftest import RepeatableBits

FALSE_ALARM = 1e-6
DRAWS = 40_000


def binary(teachers: int, labels: int, sigma: float, **more: Any) -> VotingRule:
    return VotingRule(
        mechanism=Mechanism.BINARY, teachers=teachers, labels=labels, sigma=sigma, **more
    )


def p_value(observed: NDArray[Any], chances: NDArray[Any]) -> float:
    """Of Pearson's chi-square; outcomes expected less than ten times are put together."""
    expected = observed.sum() * chances
    rare = expected < 10
    seen = np.append(observed[~rare], observed[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    if wanted[-1] < 1e-9:
        assert not seen[-1]
        seen, wanted = seen[:-1], wanted[:-1]
    return float(stats.chi2.sf(((seen - wanted) ** 2 / wanted).sum(), wanted.size - 1))


def same_law(one: NDArray[Any], two: NDArray[Any]) -> float:
    """P-value of two histograms being draws of one law."""
    total = one + two
    rare = total < 20
    table = np.stack([np.append(x[~rare], x[rare].sum()) for x in (one, two)])
    table = table[:, table.sum(axis=0) > 0]
    return float(stats.chi2_contingency(table).pvalue)


def said(counts: list[int], teachers: int) -> Ballots:
    """Ballots with so many votes for yes on each label, for many queries alike."""
    one = np.arange(teachers)[:, None] < np.array(counts)
    return Ballots.of(np.broadcast_to(one, (DRAWS, teachers, len(counts))))


@pytest.mark.parametrize("noises", [1, 2])
def test_yes_or_no_answers_follow_the_normal_law(bits, noises):
    counts = np.array([3, 4, 5, 6, 9])
    rule = binary(10, 5, 2.5, noises=noises)
    yes = (release(rule, said(counts.tolist(), 10), rng=bits).labels == 1).sum(axis=0)
    spread = 2.5 * (math.sqrt(2) if noises == 2 else 2)

    def fits(spread: float) -> float:
        chance = ndtr((2 * counts - 10) / spread)
        deviation = (yes - DRAWS * chance) ** 2 / (DRAWS * chance * (1 - chance))
        return float(stats.chi2.sf(deviation.sum(), counts.size))

    assert fits(spread) > FALSE_ALARM
    for wrong in (0.8, 1.2):
        assert fits(wrong * spread) < FALSE_ALARM


def test_one_draw_is_as_good_as_noise_on_both_counts(bits):
    # The same law by the definition: both counts get noise, the larger one is released.
    rng = np.random.default_rng(4)
    yes, no = (count + 2.5 * rng.standard_normal(DRAWS) for count in (6, 4))
    ours = release(binary(10, 1, 2.5), said([6], 10), rng=bits).labels.sum()
    table = [[ours, DRAWS - ours], [(yes > no).sum(), (yes <= no).sum()]]
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


def test_answers_are_given_where_the_larger_count_is_large(bits):
    check = Confidence(threshold=8.0, sigma=1.5)
    counts = np.array([1, 5, 6, 8])
    rule = binary(10, 4, 2.5, confidence=check)
    labels = release(rule, said(counts.tolist(), 10), rng=bits).labels
    seen = np.stack([(labels == one).sum(axis=0) for one in (0, 1, UNANSWERED)], axis=1)
    yes = ndtr((2 * counts - 10) / (math.sqrt(2) * 2.5))
    for sigma, right in ((1.5, True), (1.2, False), (1.8, False)):
        given = ndtr((np.maximum(counts, 10 - counts) - 8) / sigma)
        law = np.stack([given * (1 - yes), given * yes, 1 - given], axis=1)
        fits = [p_value(one, chances) > FALSE_ALARM for one, chances in zip(seen, law, strict=True)]
        assert all(fits) is right
    assert Released(labels).answered == pytest.approx(1 - seen[:, 2].sum() / labels.size)
    assert Released(labels[:0]).answered == 0.0


def cast_ballots(labels: int, queries: int) -> tuple[Ballots, NDArray[Any], int]:
    """Fifteen teachers who cast three sets; histogram over all 2^k sets."""
    sets = [1 << (labels - 1), 0, (1 << labels) - 1]
    codes = np.repeat(sets, [7, 5, 3])
    places = np.arange(labels - 1, -1, -1)
    ballots = (codes[:, None] >> places) & 1
    histogram = np.bincount(codes, minlength=1 << labels)
    return Ballots.of(np.broadcast_to(ballots, (queries, *ballots.shape))), histogram, sets[2]


def powerset(labels: int, sigma: float, limit: float | None = None) -> VotingRule:
    return VotingRule(
        mechanism=Mechanism.POWERSET, teachers=15, labels=labels, sigma=sigma, limit=limit
    )


def drawn(rule: VotingRule, ballots: Ballots, rng: Any) -> NDArray[Any]:
    """How often each set was released, (2^k,)."""
    labels = release(rule, ballots, rng=rng).labels.astype(np.int64)
    codes = labels @ (1 << np.arange(rule.labels - 1, -1, -1))
    return np.bincount(codes, minlength=1 << rule.labels)


def dense(histogram: NDArray[Any], sigma: float, allowed: NDArray[Any], rng: Any) -> NDArray[Any]:
    """The definition: noise on every allowed bin, the largest is released."""
    found = np.zeros(histogram.size, dtype=np.int64)
    for _ in range(10):
        noise = rng.standard_normal((DRAWS // 10, allowed.size))
        winners = (histogram[allowed] + sigma * noise).argmax(axis=1)
        found += np.bincount(allowed[winners], minlength=histogram.size)
    return found


@pytest.mark.parametrize(
    ("labels", "sigma", "limit"),
    [
        *((*rule, limit) for rule in ((2, 3.0), (4, 2.0), (7, 3.0)) for limit in (None, 2.0)),
        (10, 4.0, 2.0),
        pytest.param(10, 4.0, None, marks=pytest.mark.slow),
    ],
)
def test_sparse_sets_have_the_law_of_dense_ones(bits, labels, sigma, limit):
    rule = powerset(labels, sigma, limit)
    ballots, histogram, whole = cast_ballots(labels, DRAWS)
    allowed = np.arange(1 << labels)
    if limit is not None:
        ones = ((allowed[:, None] >> np.arange(labels)) & 1).sum(axis=1)
        allowed = allowed[ones <= limit]
        first_two = 3 << (labels - 2)  # where the whole set is truncated to
        histogram[whole], moved = 0, histogram[whole]
        histogram[first_two] += moved
    rng = np.random.default_rng(labels)
    sparse = drawn(rule, ballots, bits)
    assert not np.delete(sparse, allowed).any()
    assert allowed.size == rule.classes
    assert same_law(sparse, dense(histogram, sigma, allowed, rng)) > FALSE_ALARM
    # The same against the integral.
    used = np.flatnonzero(histogram)

    def chances(scale: float) -> NDArray[Any]:
        law = plurality_law(histogram[used], classes=rule.classes, sigma=scale * sigma)
        every = np.full(allowed.size, law[-1] / max(1, rule.classes - used.size))
        every[np.searchsorted(allowed, used)] = law[:-1]
        return every

    assert p_value(sparse[allowed], chances(1.0)) > FALSE_ALARM
    # Power: noise wrong by a fifth, and the error of noising cast sets alone, are caught.
    for wrong in (0.8, 1.2):
        assert p_value(sparse[allowed], chances(wrong)) < FALSE_ALARM
        assert same_law(sparse, dense(histogram, wrong * sigma, allowed, rng)) < FALSE_ALARM
    if used.size < rule.classes:
        assert same_law(sparse, dense(histogram, sigma, used, rng)) < FALSE_ALARM


def test_empty_sets_are_drawn_evenly_also_by_size(bits):
    # So much noise that nearly always an empty set wins: any of 1 + 6 + 15, alike.
    rule = replace(powerset(6, 1e6, 2.0))
    ballots, _, _ = cast_ballots(6, DRAWS)
    found = drawn(rule, ballots, bits)
    ones = ((np.arange(64)[:, None] >> np.arange(6)) & 1).sum(axis=1)
    assert not found[ones > 2].any()
    assert p_value(found[ones <= 2], np.full(22, 1 / 22)) > FALSE_ALARM


def test_a_set_that_nobody_cast_wins_as_often_as_it_should(bits):
    # 2^62 sets: the largest empty one is about 8.8 standard deviations above zero.
    rule = powerset(62, 1.0)
    votes = np.zeros((20_000, 15, 62), dtype=np.uint8)
    votes[:, 6:, 0] = 1  # nine for one set, six for the empty one
    codes, largest = winning_sets(rule, Ballots.of(votes).sets(rule), rng=bits)
    assert largest.tolist() == [9.0] * 20_000
    seen = np.array([(codes == (1 << 61)).sum(), (codes == 0).sum()])
    law = plurality_law(np.array([9, 6]), classes=1 << 62, sigma=1.0)
    assert p_value(np.append(seen, 20_000 - seen.sum()), law) > FALSE_ALARM
    assert 0.2 < law[2] < 0.8
    others = codes[(codes != 0) & (codes != 1 << 61)]
    assert np.unique(others).size == others.size  # of 4e18, none twice


def test_sets_are_released_where_enough_teachers_cast_one(bits):
    check = Confidence(threshold=8.0, sigma=2.0)
    rule = replace(powerset(4, 2.0), confidence=check)
    ballots, _, _ = cast_ballots(4, DRAWS)
    labels = release(rule, ballots, rng=bits).labels
    refused = (labels == UNANSWERED).all(axis=1)
    assert np.array_equal(refused, (labels == UNANSWERED).any(axis=1))  # all labels or none
    seen = np.array([refused.sum(), DRAWS - refused.sum()])
    for sigma, right in ((2.0, True), (1.6, False), (2.4, False)):
        given = float(ndtr((7 - 8) / sigma))
        assert (p_value(seen, np.array([1 - given, given])) > FALSE_ALARM) is right


def test_winners_of_classes_follow_the_integral(bits):
    counts = np.array([6, 5, 2, 0])
    chosen = np.broadcast_to(np.repeat(np.arange(4), counts), (DRAWS, 13))
    rule = VotingRule(mechanism=Mechanism.GNMAX, teachers=13, labels=4, sigma=2.0)
    seen = np.bincount(release(rule, Choices(chosen, 4), rng=bits).labels, minlength=4)
    for scale, right in ((1.0, True), (0.8, False), (1.2, False)):
        law = plurality_law(counts, classes=4, sigma=2.0 * scale)[:-1]
        assert (p_value(seen, law) > FALSE_ALARM) is right
    check = Confidence(threshold=8.0, sigma=1.0)
    checked = release(replace(rule, confidence=check), Choices(chosen, 4), rng=bits).labels
    assert (checked == UNANSWERED).mean() == pytest.approx(1 - ndtr(-2.0), abs=0.01)


@pytest.mark.parametrize("empty", [0, 1, 1023, 1 << 40, (1 << 62) - 3])
def test_whether_all_empty_sets_stay_below_is_exact(monkeypatch, empty):
    """The chance in float64 against the mean over the step, at 300 binary places."""
    seen = []

    def compare(chances, exact, *, rng):
        seen.append((chances[0], float(exact(0))))
        return np.array([True])

    monkeypatch.setattr(draw_noisy_outcomes, "below", compare)
    for at in (-3.0, 0.0, 2.5, 6.0, 8.8, 9.5, 11.0):
        draw_noisy_outcomes._above_all(np.rint([at * STEPS]), np.array([empty]), secure())
    for quick, exact in seen:
        assert abs(quick - exact) < 0.01 * coins.ERROR
    assert len(seen) == 7


def test_equal_counts_are_a_fair_draw():
    """Two noisy counts on one grid step: either is in front, whichever stands first."""
    noisy = np.tile([3.0, 7.0, -np.inf, 7.0], (4_000, 1))
    best = draw_noisy_outcomes._highest(noisy, RepeatableBits(8))
    assert set(best) == {1, 3}
    # 4,000 fair coins have a standard deviation of 32; 4.9 of them are 1e-6.
    assert abs((best == 1).sum() - 2_000) < 4.9 * 32


def test_secure_noise_never_repeats():
    rule = binary(10, 5, 2.5)
    one, two = (release(rule, said([5] * 5, 10), rng=secure()).labels for _ in range(2))
    assert 0.48 < (one != two).mean() < 0.52


def test_nothing_is_released_of_no_queries(bits):
    for rule in (binary(15, 4, 1.0), powerset(4, 1.0)):
        empty = Ballots.of(np.zeros((0, 15, 4)))
        assert release(rule, empty, rng=bits).labels.shape == (0, 4)


def test_a_million_sets_of_twenty_labels_need_little_memory():
    # 5,000 queries by 50 teachers: densely 42 GB of noise. Not ru_maxrss: a process starts with
    # that of the one that started it.
    program = """
from pathlib import Path
import numpy as np
from dpal.accounting.votes.mechanisms import Mechanism
from dpal.accounting.votes.voting_rule import VotingRule
from dpal.randomness import secure
from dpal.voting.ballots import Ballots
from dpal.voting.draw_noisy_outcomes import release
rule = VotingRule(mechanism=Mechanism.POWERSET, teachers=50, labels=20, sigma=7.0)
ballots = Ballots.of(np.random.default_rng(1).random((5_000, 50, 20)) < 0.1)
print(release(rule, ballots, rng=secure()).labels.shape)
status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
print(next(int(line.split()[1]) / 1024**2 for line in status if line.startswith("VmHWM:")))
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    shape, gigabytes = found.stdout.splitlines()
    assert shape == "(5000, 20)"
    assert float(gigabytes) < 2
