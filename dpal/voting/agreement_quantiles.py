"""How far teachers agree, as a guess that bounds are chosen by: from public ballots, or paid for.

What an answer tells depends on how many votes the leading class is ahead. Counted as if two sides
were left, so many votes are on the side of the majority: half of all, and half of the lead. One
ballot moves that by one vote at most on every query, and so each quantile over the queries by one:
numbers in order are moved no further than the one that is moved furthest.

Source: own derivation; docs/voting.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.votes.observed_cost import leads_of
from dpal.accounting.votes.voting_rule import AGREEMENT_QUANTILES
from dpal.errors import ParameterError
from dpal.mechanisms.gaussian import noisy_sum
from dpal.randomness import BitSource
from dpal.voting.ballots import Choices

_SHARES = 20  # of a guess
_DIGITS = 4

Floats = NDArray[np.float64]


def votes_on_the_side_of_the_majority(choices: Choices) -> Floats:
    """Half of all votes and half of the lead, by query. Private, if the ballots are."""
    bins = choices.chosen + choices.classes * np.arange(choices.queries)[:, None]
    flat = np.bincount(bins.ravel(), minlength=choices.queries * choices.classes)
    counts = flat.reshape(choices.queries, choices.classes).astype(np.float64)
    return np.asarray((choices.teachers + leads_of(counts)) / 2)


def shares_of_public(choices: Choices) -> tuple[float, ...]:
    """The guess that an ensemble on public records gives: 20 quantiles.

    Args:
      choices: ballots of teachers that were trained on public records.
    """
    agreeing = votes_on_the_side_of_the_majority(choices) / choices.teachers
    return _rounded(np.quantile(agreeing, _middles(_SHARES)))


def noisy_quantiles(choices: Choices, sigma: float, *, rng: BitSource) -> tuple[float, ...]:
    """Five quantiles of the agreement with noise, as shares; charged as `summary_event`.

    Whoever keeps them pays. One ballot moves each by one vote at most.

    Args:
      choices: of every teacher on every query.
      sigma: standard deviation of the noise on each, in votes.
      rng: source of the noise.
    """
    agreeing = np.sort(votes_on_the_side_of_the_majority(choices))
    places = np.minimum(
        (_middles(AGREEMENT_QUANTILES) * choices.queries).astype(np.int64), choices.queries - 1
    )
    noisy = noisy_sum(agreeing[places], sigma, rng=rng) / choices.teachers
    # In order and within bounds: what is released may be tidied for free.
    return _rounded(np.sort(np.clip(noisy, 0.5, 1.0)))


def shares_between(quantiles: Sequence[float]) -> tuple[float, ...]:
    """The guess that a few quantiles give: straight lines between them, from a tie to all teachers.

    >>> shares_between([0.6, 0.8, 0.9, 1.0, 1.0])[::5]
    (0.525, 0.75, 0.8875, 1.0)
    """
    if not len(quantiles):
        raise ParameterError("a guess needs quantiles")
    places = np.concatenate([[0.0], _middles(len(quantiles)), [1.0]])
    return _rounded(np.interp(_middles(_SHARES), places, [0.5, *quantiles, 1.0]))


def _middles(count: int) -> Floats:
    return (np.arange(count) + 0.5) / count


def _rounded(shares: Floats) -> tuple[float, ...]:
    return tuple(round(float(share), _DIGITS) for share in shares)
