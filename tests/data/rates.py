"""Shares of records, and whether they may be what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scipy.stats import binomtest


@dataclass(frozen=True)
class Share:
    """So many of so many."""

    hits: int
    of: int

    @property
    def least(self) -> float:
        """Lower end of its 95 % confidence interval (Clopper-Pearson)."""
        return float(binomtest(self.hits, self.of).proportion_ci(0.95).low)

    @property
    def most(self) -> float:
        """Upper end of its one-sided 95 % confidence interval."""
        test = binomtest(self.hits, self.of, alternative="less")
        return float(test.proportion_ci(0.95).high)

    def __str__(self) -> str:
        return f"{self.hits / self.of:.4f} ({self.hits:,} of {self.of:,})"


def together(shares: Iterable[Share]) -> Share:
    """Several counts as one."""
    every = list(shares)
    return Share(sum(one.hits for one in every), sum(one.of for one in every))


def is_at_least(share: Share, wanted: float) -> bool:
    """False where a true share of `wanted` gives so few once in 10,000 times."""
    return bool(binomtest(share.hits, share.of, wanted, "less").pvalue > 1e-4)


def is_at_most(share: Share, allowed: float) -> bool:
    """False where a true share of `allowed` gives so many once in 10,000 times."""
    return bool(binomtest(share.hits, share.of, allowed, "greater").pvalue > 1e-4)
