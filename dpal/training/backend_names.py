"""Names of the ways to per-record gradients, without the weight of importing torch."""

from __future__ import annotations

from enum import StrEnum


class Backend(StrEnum):
    """What computes the clipped sums: the same ones, at different speed.

    BOOK_KEEPING: one pass; every layer finds norms in its fastest way.
    OPACUS: Opacus' hooks.
    FUNCTIONAL: torch.func, record by record in one batched call; the plainest.
    """

    BOOK_KEEPING = "book_keeping"
    OPACUS = "opacus"
    FUNCTIONAL = "functional"
