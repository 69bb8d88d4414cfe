"""Which records of a pool a process owns, where several share them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal import check
from dpal.errors import ParameterError


@dataclass(frozen=True, kw_only=True)
class Share:
    """The rows of a pool whose number leaves `rank` when divided by `processes`.

    Whatever is labeled, every row is in the share of exactly one rank: ownership depends on
    the row's number in the pool alone.

    Attributes:
      rank: of the owner, from 0.
      processes: how many owners there are; 1 owns all.
    """

    rank: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        check.at_least(1, processes=self.processes)
        if not 0 <= self.rank < self.processes:
            raise ParameterError(
                f"rank {self.rank} of {self.processes} processes does not exist; ranks are "
                f"0 to {self.processes - 1}"
            )

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.intp]:
        """Positions of the owned ones in `rows` (n,), ascending."""
        return np.flatnonzero(rows % self.processes == self.rank)


WHOLE = Share()
