"""When two records are the same, or so alike that one must be a copy of the other.

The same are records with the same content as a model sees it, however it is stored. Alike are
records whose sketches, some tens of bytes each, differ by no more than copying does. One way
for each kind of content; how well each recognises copies is measured in docs/recognition.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from torch import Tensor

from dpal.data.likeness import pictures, texts, vectors
from dpal.data.likeness.record_sketches import Described, Rows, Sketches, SketchRows
from dpal.data.parquet import RowNumbers
from dpal.data.sources import Content


class Likeness(Protocol):
    """One kind of content: what is hashed, what is kept of it, and when two are alike."""

    @property
    def WAY(self) -> str:  # noqa: N802
        """Name and version; sketches of different ways are never compared."""
        ...

    @property
    def WIDTH(self) -> int:  # noqa: N802
        """Bytes of a sketch."""
        ...

    @property
    def SALTED(self) -> bool:  # noqa: N802
        """Whether sketches depend on the salt."""
        ...

    @property
    def NEAREST(self) -> bool:  # noqa: N802
        """Whether `find` takes the most alike of all that are known, and not the first."""
        ...

    def describe(self, column: pa.Array, *, rows: RowNumbers | None, salt: bytes) -> Described:
        """Reads some records of a source's own column."""
        ...

    def contents(
        self, column: pa.Array, decoded: Tensor, *, rows: RowNumbers | None
    ) -> Iterator[bytes]:
        """The contents of `describe`, for records that were decoded already."""
        ...

    def find(self, known_sketches: SketchRows, new: Sketches) -> Rows:
        """For each new sketch the row of a known one that is alike, -1 where none is."""
        ...


KINDS: dict[Content, Likeness] = {
    Content.IMAGE: pictures,
    Content.FEATURES: vectors,
    Content.TEXT: texts,
}
WAYS: dict[str, Likeness] = {kind.WAY: kind for kind in KINDS.values()}

__all__ = ["KINDS", "WAYS", "Described", "Likeness", "Rows", "SketchRows", "Sketches"]
