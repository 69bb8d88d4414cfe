"""How many labels hidden selection keeps in reserve, and at which noise it looks for thresholds.

A threshold is looked for by a few rough comparisons, and accepted or not by one count that is
more precise. Only the latter must never be wrong, so the reserve covers its noise alone; where
all queries share one cap, their noises add up to less than the sum of their reserves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import scipy

COMPARISONS = 8  # 255 cuts: around the expected quantile they are about 1 % of the aim apart
CONFIRMING_SHARE = 0.5  # of a threshold's precision (1 / variance) is the confirming count's
# What the search misses its aim by, and the confirming count's noise, are above so many noise
# multipliers in about one query of fifty. Most labels are bought at 5 to 7, whatever the query.
_MARGIN = 6.0
IN_VAIN = 0.02  # chance, about, that a query whose cap is near is not accepted
_DRAWN_WIDER = 1 + 1e-5  # noise is drawn wider by 2**-20 of itself, and quantiles are rounded


@dataclass(frozen=True, kw_only=True)
class CappedQueries:
    """Queries whose labels have one cap.

    Attributes:
      sizes: of the queries, in order.
      failure: bound on the chance that more than the cap pass, for each of the queries.
      failure_in_all: the same for all queries of the campaign.
    """

    sizes: tuple[int, ...]
    failure: float
    failure_in_all: float

    @property
    def cap(self) -> int:
        """Labels that they may buy together."""
        return sum(self.sizes)

    def reserve(self, noise: float) -> int:
        """Labels below the cap at which confirming counts stop accepting.

        After t queries the records that passed are the accepted noisy counts, rounded, less
        their noises. Which of the t counts were accepted depends on the noise, so that the bound
        goes over all 2**t ways. In the neighbouring world one more record may have passed, which
        "or as many" of the event covers (docs/guarantee.md, "Hidden selection").

        Args:
          noise: noise multiplier of each threshold.
        """
        return max(
            math.ceil(self._deviations(t) * noise + t / 2) for t in range(1, len(self.sizes) + 1)
        )

    def loss(self, noise: float) -> int:
        """Labels that will not be bought, about: the reserve, and a margin for the search."""
        return self.reserve(noise) + math.ceil(_MARGIN * noise)

    def noise_for(self, loss: float) -> float:
        """The noise multiplier at which no more labels than this are lost; not above 0 for none."""
        queries = len(self.sizes)
        slope = _MARGIN + max(self._deviations(t) for t in range(1, queries + 1))
        return (loss - queries / 2 - 2) / slope

    def aims(self, noise: float) -> Sequence[int]:
        """Records that should have passed after each query: in proportion to what was asked."""
        share = (self.cap - self.loss(noise)) / self.cap
        asked = [sum(self.sizes[: t + 1]) for t in range(len(self.sizes))]
        return [math.floor(share * size) for size in asked]

    def _deviations(self, t: int) -> float:
        """Noise of t confirming counts that is exceeded by chance, over the noise multiplier."""
        # Accountants compose chances as if they were independent: 1 - (1 - failure)^t.
        chance = math.log(t * self.failure * (1 - self.failure_in_all)) - t * math.log(2)
        confirming = math.sqrt(t / CONFIRMING_SHARE)
        return -float(scipy.special.ndtri_exp(chance)) * confirming * _DRAWN_WIDER
