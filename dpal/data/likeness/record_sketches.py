"""What is known of some records before they are looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Sketches = NDArray[np.uint8]
Rows = NDArray[np.intp]


class SketchRows(Protocol):
    """Sketches in memory, or somewhere else from where slices are read."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Sketches: ...


NOBODY = -1  # where a row is asked for and there is none


@dataclass(frozen=True, eq=False)
class Described:
    """Some records.

    Attributes:
      contents: of each, bytes that two records share exactly when they are the same.
      sketches: (n, width) uint8, all zero where a record says too little to be compared.
      telling: (n,) whether a record says so much that no two people have the same by chance.
    """

    contents: list[bytes]
    sketches: Sketches
    telling: NDArray[np.bool_]
