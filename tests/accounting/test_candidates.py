"""Queries that select from candidates drawn by secret coins: exact laws of tiny campaigns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.accounting.cohort_spending import campaign_epsilon, second_opinion
from dpal.accounting.events import (
    NEVER_SELECTED,
    Charge,
    NoisyMoments,
    NoisyThreshold,
    PhaseExposure,
    Release,
    SecretDraw,
)
from dpal.errors import ParameterError
from tests.accounting.test_secret_draws_amplification import (
    Density,
    campaign,
    cell_chances,
    exact_epsilon,
    target,
)
from tests.variants import quick_and_slow

NOISE, COUNT_NOISE, UNLABELED_NOISE = 1.2, 1.5, 1.5
SUMS, COUNTS = np.linspace(-5, 7, 25), np.linspace(-6, 9, 31)


def releases_of(chance: float, candidates: float, *, self_training: bool) -> tuple[Release, ...]:
    """A draw with candidates, a training, a gate, a training, and perhaps one of all others."""
    releases = campaign(
        [
            SecretDraw(chance=chance, candidates=candidates),
            NoisyThreshold(noise_multiplier=COUNT_NOISE),
        ],
        [NoisyMoments(noise_multiplier=NOISE)] * 2,
    )
    if not self_training:
        return releases
    # The last cohort takes whoever is in no other one.
    others = Charge(cohorts=("2",), event=NoisyMoments(noise_multiplier=UNLABELED_NOISE))
    renamed = [
        Release(
            name=release.name,
            kind=release.kind,
            phase=release.phase,
            charges=tuple(
                Charge(
                    cohorts=(*charge.cohorts, "2")
                    if NEVER_SELECTED in charge.cohorts
                    else charge.cohorts,
                    event=charge.event,
                )
                for charge in release.charges
            ),
        )
        for release in releases
    ]
    return (*renamed, Release(name="2/t", kind="training", phase=2, charges=(others,)))


def law(
    contents: Sequence[float],
    chance: float,
    candidates: float,
    *,
    self_training: bool,
    counts_all: bool = False,
) -> Density:
    """All noisy sums and the noisy count, over every outcome of everybody's coins; flattened.

    Whoever has content scores high. The noisy count of candidates alone decides whether those who
    score high pass. A blank record is never counted, never passes and adds nothing.

    Args:
      contents: of the records, in [-1, 1]; 0 is blank.
      chance: of being drawn.
      candidates: of being a candidate, if not drawn.
      self_training: whether a last sum is over all that are labeled by nobody.
      counts_all: plants an error: records that are no candidates are counted as well.
    """
    counted = (COUNTS[:-1] + COUNTS[1:]) / 2
    passes = counted <= 5.0  # nearly always: the worst for a record that scores high
    sides = [("drawn", chance), ("candidate", (1 - chance) * candidates)]
    sides.append(("aside", (1 - chance) * (1 - candidates)))
    total = np.zeros(0)
    for coins in itertools.product(sides, repeat=len(contents)):
        weight = math.prod(share for _, share in coins)
        sum_of = dict.fromkeys(("drawn", "candidate", "aside"), 0.0)
        count_of = dict.fromkeys(sum_of, 0)
        for value, (side, _) in zip(contents, coins, strict=True):
            sum_of[side] += value
            count_of[side] += value != 0
        counted_now = count_of["candidate"] + counts_all * count_of["aside"]
        initial, passing = sum_of["drawn"], sum_of["candidate"]
        first = cell_chances(SUMS, initial, NOISE)
        count = cell_chances(COUNTS, counted_now, COUNT_NOISE)
        second = np.array(
            [cell_chances(SUMS, initial + passing * entered, NOISE) for entered in passes]
        )
        parts = np.einsum("i,j,jk->ijk", first, count, second)
        if self_training:
            rest = np.array(
                [
                    cell_chances(SUMS, sum_of["aside"] + passing * (not entered), UNLABELED_NOISE)
                    for entered in passes
                ]
            )
            parts = np.einsum("ijk,jl->ijkl", parts, rest)
        total = weight * parts.ravel() + (total if total.size else 0.0)
    return total


CASES = [
    (0.1, 0.3, False),
    (0.3, 0.5, False),
    (0.05, 0.1, False),
    (0.1, 0.3, True),
    (0.05, 0.1, True),
]


@pytest.mark.parametrize(
    ("chance", "candidates", "self_training"), quick_and_slow([CASES[3]], CASES)
)
def test_no_attack_on_a_tiny_pool_beats_the_account(chance, candidates, self_training):
    """Three records: the likelihood-ratio attack at delta 1e-2; 60 % of the account at least."""
    releases = releases_of(chance, candidates, self_training=self_training)
    bound = campaign_epsilon(releases, target())
    told = max(
        exact_epsilon(
            law((1.0, *others), chance, candidates, self_training=self_training),
            law((0.0, *others), chance, candidates, self_training=self_training),
            1e-2,
        )
        for others in [(0.0, 0.0), (1.0, -1.0)]
    )
    assert 0.6 * bound <= told <= bound + 1e-6
    assert abs(bound - second_opinion(releases, target())) <= 5e-3 * (1 + bound)
    # It is cheaper than the same queries of all records.
    assert bound < campaign_epsilon(releases_of(chance, 1.0, self_training=self_training), target())


def test_counting_records_that_are_no_candidates_is_caught_by_the_exact_law():
    """The power of the tests above: a threshold over the whole pool, paid for by candidates."""
    chance, candidates = 0.02, 0.02
    bound = campaign_epsilon(releases_of(chance, candidates, self_training=False), target())

    def told(*, counts_all: bool) -> float:
        here, blank = (
            law(contents, chance, candidates, self_training=False, counts_all=counts_all)
            for contents in ((1.0, 0.0, 0.0), (0.0, 0.0, 0.0))
        )
        return exact_epsilon(here, blank, 1e-2)

    assert told(counts_all=False) <= bound < told(counts_all=True)


def test_more_candidates_never_cost_less():
    bounds = [
        campaign_epsilon(releases_of(0.1, share, self_training=False), target())
        for share in (0.02, 0.1, 0.3, 0.7, 0.99, 1.0)
    ]
    assert all(few <= many + 1e-3 for few, many in itertools.pairwise(bounds))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Release, ...]:
    """A draw with candidates, one or two gates, trainings of any length."""
    queries = draw(st.integers(1, 2))
    draws = SecretDraw(
        chance=draw(st.floats(0.01, 0.5)),
        candidates=draw(st.floats(0.02, 0.9)),
        failure_probability=1e-9,
    )
    gate = NoisyThreshold(noise_multiplier=draw(st.floats(1.0, 20.0)), failure_probability=1e-9)
    trainings = [
        PhaseExposure(
            steps=draw(st.integers(1, 200)),
            sample_rate=draw(st.floats(0.01, 0.5)),
            noise_multiplier=draw(st.floats(0.7, 6.0)),
        )
        for _ in range(queries + 1)
    ]
    return campaign([draws, *[gate] * queries], trainings)


@pytest.mark.slow  # tiny campaigns above are by both accountants, too
@settings(max_examples=8, deadline=None, derandomize=True)
@given(histories(), st.sampled_from([1e-3, 1e-6]))
def test_both_accountants_agree(releases, delta):
    promise = target(delta)
    ours = campaign_epsilon(releases, promise)
    if not ours <= 15:
        return  # dp-accounting takes minutes for some of them
    assert abs(second_opinion(releases, promise) - ours) <= 5e-3 * (1 + ours)


def test_candidates_are_in_the_record_where_there_are_some():
    """Records of earlier versions say nothing of them, and keep their digests."""
    narrowed = SecretDraw(chance=0.1, candidates=0.2)
    assert SecretDraw.of_record(narrowed.record()) == narrowed
    assert "candidates" not in SecretDraw(chance=0.1).record()


@pytest.mark.parametrize("candidates", [0.0, -0.1, 1.1, math.nan])
def test_candidates_are_some_of_the_others(candidates):
    with pytest.raises(ParameterError):
        SecretDraw(chance=0.1, candidates=candidates)
