"""A site and who asks, after their base transfers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dpal.capc.base_transfers import choose_keys, offer_keys, offered_keys
from dpal.capc.transfer_extension import (
    RowHash,
    extended_choices,
    extended_rows,
    secret_choices,
)
from dpal.randomness import secure

FALSE_ALARM = 1e-7


@dataclass(frozen=True, eq=False)
class Pair:
    """What both hold.

    Attributes:
      offered: (2, 128, 32) keys of who asks.
      chosen: (128, 32) keys of the site.
      secret: (2,) of the site.
      row_hash: of both.
    """

    offered: np.ndarray
    chosen: np.ndarray
    secret: np.ndarray
    row_hash: RowHash

    def rows(self, choices: np.ndarray, purpose: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is sent, the rows of who asks, and the site's."""
        sent, rows = extended_choices(self.offered, choices, purpose)
        return sent, rows, extended_rows(self.chosen, self.secret, sent, purpose)


def fresh_secret() -> np.ndarray:
    secret = secure().words(2).copy()
    secret[0] |= np.uint64(1)
    return secret


def paired() -> Pair:
    seeds, secret = [secure().words(4).tobytes() for _ in range(2)], fresh_secret()
    offer = offer_keys(seeds[0])
    points, chosen = choose_keys(offer, secret_choices(secret), seeds[1])
    return Pair(offered_keys(seeds[0], points), chosen, secret, RowHash.of(offer, points))


def uniform_chance(values: np.ndarray) -> float:
    """Chance of bytes so unevenly spread, if each were uniform and by itself."""
    data = np.ascontiguousarray(values).view(np.uint8)
    return float(scipy.stats.chisquare(np.bincount(data.ravel(), minlength=256)).pvalue)


def alike_chance(first: np.ndarray, second: np.ndarray) -> float:
    """Chance of two samples of bytes so far apart, if they had one law."""
    counts = [np.bincount(np.ascontiguousarray(values).view(np.uint8).ravel(), minlength=256)
              for values in (first, second)]  # fmt: skip
    there = np.sum(counts, axis=0) > 0
    return float(scipy.stats.chi2_contingency(np.array(counts)[:, there]).pvalue)
