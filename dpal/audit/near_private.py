"""Attacks on what near_private releases: noisy second moments, and noisy votes of records.

No private record is read: moments and votes of an attack are made up, and go through the code
that releases them in earnest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.cohort_spending import campaign_epsilon
from dpal.audit import hypothesis_tests
from dpal.audit.findings import AuditFinding, Layer, statistical_finding
from dpal.audit.two_worlds_bound import two_worlds
from dpal.mechanisms.laplace_counts import noisy_counts
from dpal.mechanisms.private_pca import Moments, moments_of, noisy_moments
from dpal.planning.improvement_plan import COMPONENTS, SUPPORT, ImprovementPlan
from dpal.planning.public_selection import Guidance
from dpal.privacy import Adjacency, PrivacyTarget
from dpal.randomness import BitSource

_WIDTH = 32  # of embeddings: each pair of directions is a test of its own, with its own noise
_LONG = 1e3  # of an embedding that has to be clipped, over the bound

Values = NDArray[np.float64]


def near_private_findings(
    plan: ImprovementPlan, *, draws: int, fresh: Callable[[], BitSource]
) -> list[AuditFinding]:
    """Attacks both releases of a plan with near_private; nothing where it releases nothing.

    Args:
      plan: whose noise is audited.
      draws: values of each release in each world.
      fresh: gives a new stream of noise.
    """
    guidance, target = plan.spec.guidance, plan.target
    if guidance is None:
        return []
    claims = [
        campaign_epsilon([plan.release(name)], target, accountant=plan.accountant)
        for name in (COMPONENTS, SUPPORT)
    ]
    return [
        *_moments(guidance, target, draws >> 4, claims[0], fresh),
        *_votes(guidance, target, draws >> 2, claims[1], fresh),
    ]


def _moments(
    guidance: Guidance,
    target: PrivacyTarget,
    draws: int,
    claim: float,
    fresh: Callable[[], BitSource],
) -> Iterator[AuditFinding]:
    bound = guidance.max_norm or 1.0
    directions = _LONG * bound * np.eye(_WIDTH)
    records, others = directions[::2], directions[1::2]
    if target.adjacency is Adjacency.ZERO_OUT:
        others = np.full_like(others, np.nan)  # blanked
    single, there, absent = (
        moments_of([rows], centre=np.zeros(_WIDTH), max_norm=bound)
        for rows in (records[:1], records, others)
    )
    moved = float(np.linalg.norm(single.total)) / bound**2
    yield AuditFinding(
        layer=Layer.STEP,
        what="second moments of one record / bound",
        expected="at most 1",
        measured=f"{moved:.6f}",
        passed=moved <= 1,
        likely="embeddings are not clipped, or to another length than is charged",
        claimed=1.0,
        value=moved,
    )
    rng, odd = fresh(), float(target.adjacency is Adjacency.REPLACE_ONE)

    def seen(moments: Moments) -> Values:
        drawn = (
            noisy_moments(moments, guidance.components, adjacency=target.adjacency, rng=rng)
            for _ in range(max(1, draws // _WIDTH))
        )
        return np.concatenate([np.diag(released)[::2] - odd * np.diag(released)[1::2]
                               for released in drawn])  # fmt: skip

    present, without = seen(there), seen(absent)
    yield two_worlds(
        "records by second moments", present, without, claim, delta=target.delta, gaussian=True
    )


def _votes(
    guidance: Guidance,
    target: PrivacyTarget,
    draws: int,
    claim: float,
    fresh: Callable[[], BitSource],
) -> Iterator[AuditFinding]:
    event, rng = guidance.support, fresh()
    elsewhere = event.l0_sensitivity - 1  # where the vote is counted in the other world, or nowhere
    worlds = [
        noisy_counts(np.tile(np.array(counts, np.int64), draws), event, rng=rng).reshape(-1, 2)
        for counts in ((1, 0), (0, elsewhere))
    ]
    noise = np.abs(worlds[0] - [1, 0]).ravel()
    # |Y| of Laplace noise of scale 1 / epsilon, on a fine grid: mean and deviation 1 / epsilon.
    size, error = float(noise.mean()) * event.epsilon, 1 / math.sqrt(noise.size)
    yield statistical_finding(
        Layer.MECHANISM,
        "noise on votes / planned",
        hypothesis_tests.of_deviation((size - 1) / error),
        expected=f"1 +- {490 * error:.2g} %",
        measured=f"{size:.5f}",
        likely="noise on votes is not scaled by 1 / epsilon",
        claimed=1.0,
        value=size,
        within=4.9 * error,
    )
    present, without = (counts[:, 0] - (counts[:, 1] if elsewhere else 0.0) for counts in worlds)
    yield two_worlds("records by their votes", present, without, claim, delta=target.delta)
