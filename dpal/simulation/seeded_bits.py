"""Random words that repeat, for public draws that several rehearsals share. NOT for releases."""

from __future__ import annotations

import numpy as np

from dpal.randomness import Words, seeded


class SeededBits:
    """A stream of words that anybody can repeat: whatever is drawn with it hides nothing."""

    def __init__(self, seed: int, purpose: str) -> None:
        self._generator = seeded(seed, purpose)

    def words(self, count: int) -> Words:
        """Returns the next `count` words, shape (count,)."""
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)
