"""A bound of what the votes cost, told with noise, and the limit that it must be within."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpal import check
from dpal.accounting.events import CostBoundedVotes
from dpal.canonical import LATER


@dataclass(frozen=True, kw_only=True)
class CostBound:
    """Answers leave with little noise only if what they cost, told with noise, is within a limit.

    What the votes that were cast cost (`observed_cost.told_cost`) is private and usually far below
    what any votes could cost. An upper bound of it is released with noise in proportion
    to its smooth sensitivity (`dpal.mechanisms.sanitized_cost`). All of this is chosen without
    the votes.

    Attributes:
      order: Rényi order of all these costs, a multiple of 0.1.
      beta: of the smooth sensitivity.
      noise: standard deviation over it.
      margin: of the bound, in standard deviations.
      limit: largest bound with which answers leave, at that order.
      by_lead: winners of a plurality are bounded by how far they lead (`lead_costs`); accounts of
        earlier versions are by the published bound.
      fallback_sigma: noise of the answers that leave where the bound is above the limit: so much
        that they cost no more than the limit, whatever the votes are. None for no answers.
    """

    order: float
    beta: float
    noise: float
    margin: float
    limit: float
    by_lead: bool = field(default=False, metadata=LATER)
    fallback_sigma: float | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        check.at_least(1.1, order=self.order)
        check.positive(limit=self.limit, margin=self.margin)
        if self.fallback_sigma is not None:
            check.positive(fallback_sigma=self.fallback_sigma)
        _ = self.price  # refuses an order, beta or noise out of range

    @property
    def price(self) -> float:
        """What telling the bound costs, at its order."""
        # Settings name mechanisms of this module, and are read without numpy.
        from dpal.accounting.votes.smooth_sensitivity import sanitizing_cost

        return sanitizing_cost(self.order, beta=self.beta, noise=self.noise)

    @property
    def failure(self) -> float:
        """Chance that the bound is below what it bounds."""
        return math.erfc(self.margin / math.sqrt(2)) / 2

    @property
    def event(self) -> CostBoundedVotes:
        """What bound and answers are charged as together."""
        return CostBoundedVotes(
            order=self.order, divergence=self.price + self.limit, failure=self.failure
        )
