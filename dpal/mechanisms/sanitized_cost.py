"""Telling a cost that depends on private votes: an upper bound, with noise.

Source:
  Noise in proportion to smooth sensitivity: Nissim, Raskhodnikova & Smith (2007), Sec. 2;
  Gaussian: Papernot, Song, Mironov, Raghunathan, Talwar & Erlingsson (2018), App. B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import scipy

from dpal import check
from dpal.accounting.votes.smooth_sensitivity import sanitizing_cost
from dpal.errors import ParameterError
from dpal.mechanisms.gaussian import precise_normal
from dpal.randomness import BitSource

# Public, so that neither the low bits of a float nor a grid that follows the private scale
# tell anything; fine beside any cost that matters.
GRID: Final = 2.0**-20  # nats
_MAX_MARGIN = 8.0  # a chance of failure of 6e-16, below any delta


@dataclass(frozen=True, kw_only=True)
class SanitizingTerms:
    """How a private cost R(D) with smooth sensitivity SS(D) is told. Chosen without the votes.

    Released is Y = R + W (margin + N(0, 1)), where W = noise * widening * SS.

    The margin cannot be added to a noisy R afterwards: it is in proportion to the private
    SS. So it is put in front of the noise, as a part of f = R + margin * W. Between
    neighbours D, D' let S be the smaller of SS(D), SS(D'). R moves by at most S, and SS by at
    most (e^beta - 1) S. So f moves by at most

        S (1 + margin * noise * widening * (e^beta - 1)) = S * widening

    if widening = 1 / (1 - margin * noise * (e^beta - 1)). So widening * SS, beta-smooth as SS
    is, bounds the change of f, and `sanitizing_cost` pays for the whole of Y. And Y < R
    exactly where N(0, 1) < -margin, whatever the votes.

    A number that is told is not yet a guarantee. It becomes one where labels leave only if Y
    is within a limit L that was set before: on votes with R > L they leave with chance
    `failure` at most, which adds to delta; on votes with R <= L they cost at most L. For
    that the R of each D need only bound the direction from D to its neighbours.

    Attributes:
      order: Rényi order at which R was computed.
      beta: of the smooth sensitivity, at least 0.
      noise: standard deviation of the noise over the smooth sensitivity of f.
      margin: how far Y is put above R, in standard deviations of its noise; 0 to 8.
    """

    order: float
    beta: float
    noise: float
    margin: float

    def __post_init__(self) -> None:
        sanitizing_cost(self.order, beta=self.beta, noise=self.noise)  # refuses what it must
        check.within(0, _MAX_MARGIN, margin=self.margin)
        if not self.margin * self.noise * math.expm1(self.beta) < 1:
            raise ParameterError(
                f"margin {self.margin:g} at noise {self.noise:g} and beta {self.beta:g} cannot be "
                "paid for: margin * noise * (e^beta - 1) must be below 1; lower one of them"
            )

    @property
    def widening(self) -> float:
        """By how much the margin's own sensitivity widens the noise, at least 1."""
        return 1 / (1 - self.margin * self.noise * math.expm1(self.beta))

    @property
    def cost(self) -> float:
        """Rényi divergence of the release at `order`, in nats, for both directions."""
        return sanitizing_cost(self.order, beta=self.beta, noise=self.noise)

    @property
    def failure(self) -> float:
        """Chance that the released number is below the cost that it stands for."""
        return float(scipy.special.ndtr(-self.margin))


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """An upper bound on a private cost that may be shown.

    Attributes:
      value: in nats, at the order of its terms; at least 0. What it cost is not in it.
      terms: how it was made.
    """

    value: float
    terms: SanitizingTerms


def sanitize(
    cost: float, smooth_sensitivity: float, *, terms: SanitizingTerms, rng: BitSource
) -> Sanitized:
    """Draws an upper bound on a cost; call once, when `terms.cost` has been reserved.

    Args:
      cost: R(D), in nats, at the order of the terms; private.
      smooth_sensitivity: SS(D), smooth at the beta of the terms, in nats; private. Of the sum
        over all that R(D) sums up.
      terms: chosen without the votes.
      rng: source of the noise.

    Returns:
      A number that is below `cost` with chance `terms.failure` at most.

    Raises:
      ParameterError: cost or smooth_sensitivity is negative or not finite. Nothing was drawn.
    """
    if not (0 <= cost < math.inf and 0 <= smooth_sensitivity < math.inf):
        # Neither is named: both are private.
        raise ParameterError(
            "a cost of votes and its sensitivity are finite numbers from 0; nothing was drawn"
        )
    # As fractions, so that the last bits of a float cannot tell of the private scale.
    scale = Fraction(terms.noise * terms.widening * smooth_sensitivity)
    noisy = Fraction(cost) + scale * (Fraction(terms.margin) + precise_normal(rng=rng))
    # Rounding is up, and no cost is below 0: neither can make the bound fail.
    value = max(0.0, math.ceil(noisy / Fraction(GRID)) * GRID)
    return Sanitized(value=value, terms=terms)
