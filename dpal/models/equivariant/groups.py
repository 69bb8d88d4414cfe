"""The turns and flips of the pixel grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Turn = tuple[tuple[int, int], tuple[int, int]]
"""A signed permutation of the (row, column) axes, as a matrix on column vectors."""


@dataclass(frozen=True, kw_only=True)
class PointGroup:
    """Turns and flips of the grid about its centre, in a fixed order.

    A regular field has one channel for each element, in this order; an element g moves
    channel h of a field to channel gh while it moves the pixels.

    Attributes:
      name: as in the literature: D2, D4.
      elements: matrices, the identity first, closed under products.
    """

    name: str
    elements: tuple[Turn, ...]

    @property
    def order(self) -> int:
        """How many elements, hence channels of a regular field."""
        return len(self.elements)

    @cached_property
    def products(self) -> NDArray[np.int64]:
        """Shape (order, order): entry [g, h] is the index of the element gh."""
        place = {element: index for index, element in enumerate(self.elements)}
        return np.array(
            [[place[_after(g, h)] for h in self.elements] for g in self.elements], dtype=np.int64
        )

    @cached_property
    def inverses(self) -> NDArray[np.int64]:
        """Shape (order,): entry g is the index of the inverse of g."""
        inverses: NDArray[np.int64] = np.argmax(self.products == 0, axis=1)
        return inverses


def transformed_grid(grid: NDArray[np.float64], element: Turn) -> NDArray[np.float64]:
    """Turns or flips a square grid.

    Args:
      grid: (..., side, side); the last two axes are rows and columns.
      element: the turn; its pixels go to element @ (row, column), counted from the centre.

    Returns:
      (..., side, side), the values of `grid` in other places, bit by bit the same.
    """
    (row_to_row, column_to_row), (row_to_column, column_to_column) = element
    # Where a pixel comes from is the inverse, which is the transpose.
    if row_to_row:
        return grid[..., ::row_to_row, ::column_to_column]
    return np.swapaxes(grid[..., ::row_to_column, ::column_to_row], -1, -2)


def _after(second: Turn, first: Turn) -> Turn:
    """The product of two turns: first, then second."""
    (a, b), (c, d) = (np.array(second) @ np.array(first)).tolist()
    return (a, b), (c, d)


_QUARTER_TURN: Turn = ((0, -1), (1, 0))

D2 = PointGroup(
    name="D2",
    elements=(
        ((1, 0), (0, 1)),
        ((-1, 0), (0, -1)),
        ((1, 0), (0, -1)),
        ((-1, 0), (0, 1)),
    ),
)
"""Half turn and the flips of rows and columns: four elements."""

D4 = PointGroup(
    name="D4",
    # D2, then D2 after a quarter turn: in this order a field of D4 is two fields of D2
    # side by side, so that passing to the smaller group moves no channel.
    elements=(*D2.elements, *(_after(element, _QUARTER_TURN) for element in D2.elements)),
)
"""Quarter turns and flips: eight elements, all that map the pixel grid to itself."""
