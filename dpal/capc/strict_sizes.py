"""How many bits the numbers of a strict vote need, and so how long its messages are.

Both follow from the terms alone. Numbers are shared modulo 2**bits: fewer bits are fewer bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpal.capc.ballots_by_comparison import BallotRule
from dpal.capc.base_transfers import POINT_BYTES, TRANSFERS
from dpal.capc.ring import Ring
from dpal.capc.terms import QueryBatch
from dpal.capc.transfer_extension import ROWS_OF_A_BYTE

FEATURE_BITS = 8

_LOW_BITS = 16  # of a number that a message of products has in a field of its own
_HIGH_BITS = 24
_LEAST_BITS = 3
_LEAST, _MOST = -(1 << 7) * ((1 << 7) - 1), 1 << 14  # products of two numbers of 8 bits


@dataclass(frozen=True, eq=False)
class StrictSizes:
    """Of one batch.

    Attributes:
      rule: how ballots follow from models.
      queries: of the batch.
      labels: of each.
      features: of each.
    """

    rule: BallotRule
    queries: int
    labels: int
    features: int

    @cached_property
    def outcome_bits(self) -> int:
        """Bits of what is compared first, with the bias as `bounded_bias` leaves it."""
        least, most = self._reach()
        return int((most - least).max()).bit_length() + 1

    def bounded_bias(self, bias: NDArray[np.int64]) -> NDArray[np.int64]:
        """(outcomes,) the bias of what is compared, so small that no comparison overflows.

        Beyond these bounds the sign is that of the bias, whatever the query, and stays it.

        Args:
          bias: (labels,) of a site's heads.
        """
        least, most = self._reach()
        return np.asarray(np.clip(self.rule.first @ bias, -most - 1, -least))

    def _reach(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(outcomes,) the least and the largest sums of products."""
        added = np.maximum(self.rule.first, 0).sum(axis=1)
        taken = np.maximum(-self.rule.first, 0).sum(axis=1)
        return (
            self.features * (added * _LEAST - taken * _MOST),
            self.features * (added * _MOST - taken * _LEAST),
        )

    @cached_property
    def ballot_bits(self) -> int:
        """Bits of what is compared next; 0 where nothing is."""
        second = self.rule.second
        if second is None:
            return 0
        most = int((second.constants + np.maximum(second.weights, 0).sum(axis=1)).max())
        least = int((second.constants + np.minimum(second.weights, 0).sum(axis=1)).min())
        needed = max(most.bit_length(), (-least - 1).bit_length() if least < 0 else 0)
        return max(_LEAST_BITS, needed + 1)

    @cached_property
    def lengths(self) -> Mapping[str, int]:
        """Dimensions of messages, by name."""
        outcomes, nexts = self.queries * self.rule.outcomes, self.queries * self.rule.compared_next
        return {
            "point": POINT_BYTES,
            "transfers": TRANSFERS,
            "bits": FEATURE_BITS,
            "high bits": _beyond(self.outcome_bits, _LOW_BITS),
            "top bits": _beyond(self.outcome_bits, _HIGH_BITS),
            "feature bytes": self.queries * self.features * FEATURE_BITS // ROWS_OF_A_BYTE,
            "outcome bytes": whole_bytes(outcomes * self.outcome_bits),
            "ballot bytes": whole_bytes(nexts * self.ballot_bits),
            "outcome carries": self.outcome_bits - 2,
            "ballot carries": max(0, self.ballot_bits - 2),
        }


def sizes_of(batch: QueryBatch) -> StrictSizes:
    """Those of a batch."""
    return _sizes(batch.rule, batch.queries, batch.labels, batch.features)


@lru_cache(maxsize=64)
def _sizes(rule: BallotRule, queries: int, labels: int, features: int) -> StrictSizes:
    return StrictSizes(rule, queries, labels, features)


def whole_bytes(bits: int) -> int:
    """Bytes that hold so many bits."""
    return -(-bits // ROWS_OF_A_BYTE)


def bits_of(numbers: Ring, count: int) -> NDArray[np.uint8]:
    """(..., count) the lowest bits of numbers, the lowest first."""
    places = np.arange(count, dtype=np.uint32)
    return ((numbers[..., None] >> places) & np.uint32(1)).astype(np.uint8)


def _beyond(bits: int, held: int) -> int:
    """Bits of a feature, from the lowest, whose products need more bits than are held.

    Of bit b the product is multiplied by 2**b, so that b bits fewer are needed of it.
    """
    return max(0, min(FEATURE_BITS, bits - held))
