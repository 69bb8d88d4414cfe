"""The projection of embeddings onto their main directions, public or released with noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpal.errors import ParameterError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Projection:
    """An affine map onto a few directions.

    Attributes:
      centre: (width,) is taken off first.
      components: (p, width) orthonormal rows.
    """

    centre: Floats
    components: Floats

    def __call__(self, embeddings: Floats) -> Floats:
        """Projects (n, width) to (n, p).

        Raises:
          ParameterError: embeddings are of another width.
        """
        if embeddings.ndim != 2 or embeddings.shape[1] != self.centre.size:
            raise ParameterError(
                f"embeddings have shape {embeddings.shape} and {self.centre.size} columns are "
                "expected, the width that the model gives; nothing was chosen"
            )
        projected: Floats = (embeddings - self.centre) @ self.components.T
        return projected
