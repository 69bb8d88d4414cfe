"""Names of the ways to lay out a model over processes, without the weight of importing torch."""

from __future__ import annotations

from enum import StrEnum


class ModelLayout(StrEnum):
    """Who holds a model's weights, and what belongs to them, where several processes train it.

    REPLICATED: every process holds all weights; the one that trains also the sum, the noise and
    the optimizer's state.
    SHARDED: every process holds some rows of each parameter, and of its sum, noise and state.
    """

    REPLICATED = "replicated"
    SHARDED = "sharded"
