"""The second opinion's walk over cohorts that are drawn by coins nobody sees.

Nothing of `dpal.accounting.secret_draws_amplification` is used: both parts of a mixture are read
off sampled curves at losses that are tried one after the other, also where nothing is released
about those who are not drawn, for which our engine has a formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dpal.accounting.events import Event, Release
from dpal.errors import ParameterError

Curve = NDArray[np.float64]

# Shares of e^epsilon that are given to those who are not drawn, evenly by their odds.
_ODDS = np.linspace(-21.0, 21.0, 169)
_SHARES = 1 / (1 + np.exp(-_ODDS))
_NEARBY = 8  # further shares on either side of the best one,
_ROUNDS = 3  # and again around the best of those


def coin_of_phase(releases: Sequence[Release], phase: int) -> Event | None:
    """The coins by which a phase draws; None where something else selects.

    Raises:
      ParameterError: something else selects in this phase, too.
    """
    selecting = [
        charge.event
        for release in releases
        if release.phase == phase and release.selects
        for charge in release.charges
    ]
    coins = [event for event in selecting if event.entry_chance]
    if coins and len(selecting) > 1:
        raise ParameterError("secret coins draw once in a phase, and nothing else selects in it")
    return coins[0] if coins else None


def failing_draws(releases: Sequence[Release]) -> float:
    """Chances that draws take more than may be labeled, added up."""
    return sum(
        charge.event.delta
        for release in releases
        for charge in release.charges
        if charge.event.entry_chance is not None
    )


def mixed(chance: float, drawn: Curve, others: Curve, epsilons: Curve, *, removing: bool) -> Curve:
    """Zero-out: the least that any share shows, of `_SHARES` and of some around the best."""

    def at(shares: Curve) -> Curve:
        to_drawn = np.log1p(-shares) - math.log(chance)
        to_others = np.log(shares) - math.log1p(-chance)
        if removing:
            return np.asarray(
                chance * along_chords(epsilons, drawn, epsilons + to_drawn)
                + (1 - chance) * along_chords(epsilons, others, epsilons + to_others)
            )
        return np.asarray(
            (1 - shares) * along_chords(epsilons, drawn, epsilons - to_drawn)
            + shares * along_chords(epsilons, others, epsilons - to_others)
        )

    least, best = np.full(epsilons.size, np.inf), np.full(epsilons.size, 1 - chance)
    for share in [1 - chance, *_SHARES]:
        tried = at(np.full(epsilons.size, share))
        best = np.where(tried < least, share, best)
        least = np.minimum(least, tried)
    step = _ODDS[1] - _ODDS[0]
    for _ in range(_ROUNDS):
        for shares in _around(best, step):
            tried = at(shares)
            best = np.where(tried < least, shares, best)
            least = np.minimum(least, tried)
        step /= _NEARBY
    return least


def mixed_beside_a_shared_branch(chance: float, drawn: Curve, epsilons: Curve) -> Curve:
    """Replace-one: whoever is not drawn leaves the same in both worlds."""
    above = np.maximum(epsilons, 0.0)
    moved = np.log1p(np.expm1(above) / chance)
    return np.where(
        epsilons < 0,
        chance * drawn - (1 - chance) * np.expm1(np.minimum(epsilons, 0.0)),
        chance * along_chords(epsilons, drawn, moved),
    )


def along_chords(epsilons: Curve, curve: Curve, wanted: Curve) -> Curve:
    """A falling curve between its samples, along chords in e^epsilon."""
    inside = np.interp(np.exp(wanted), np.exp(epsilons), curve)
    return np.where(wanted < epsilons[0], 1.0, inside)


def _around(shares: Curve, step: float) -> Iterator[Curve]:
    """Shares whose odds are up to e^step times those of each, either way."""
    odds = np.log(shares) - np.log1p(-shares)
    for move in np.linspace(-step, step, 2 * _NEARBY + 1):
        yield 1 / (1 + np.exp(-(odds + move)))
