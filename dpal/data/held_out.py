"""Which records of a file are held out to measure models: a declared coin for each.

The coin is a digest of a record's id, or of its group's name, and of nothing else. Which of the two
parts somebody is in is therefore the same in every campaign, file and order of rows, and depends on
no content. Everybody can compute it: nothing counts on its being unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from dpal import check

MOST_HELD_OUT = 0.5  # of a pool: more would leave most records to measuring, and few to learn from


def falls_below(name: str, share: float) -> bool:
    """A coin for a name, which falls below a share of all names.

    Args:
      name: whatever the coin is of; the same name always has the same coin.
      share: from 0 to 1.

    >>> falls_below("anybody", 0.0), falls_below("anybody", 1.0)
    (False, True)
    """
    drawn = hashlib.sha256(name.encode()).digest()[:8]
    return int.from_bytes(drawn, "big") < share * 2**64


@dataclass(frozen=True, kw_only=True)
class HeldOutShare:
    """A share of a file's records that a coin holds out of the pool.

    Attributes:
      share: of all records, or groups, that are held out; above 0, at most MOST_HELD_OUT.
      column: that says whose coin counts: `id`, or the column of groups, which stay together.
    """

    share: float
    column: str = "id"

    def __post_init__(self) -> None:
        check.positive(**{"validation.share": self.share})
        check.within(0, MOST_HELD_OUT, **{"validation.share": self.share})

    def holds_out(self, names: Iterable[str | None]) -> list[bool]:
        """Whether each record is held out, by the names in its column, as text.

        A record without a name is in one of the parts, too, and refused there.
        """
        # Another prefix than of `dpal import --split`: of what that left, a share is a share.
        return [falls_below(f"dpal validation share {name or ''}", self.share) for name in names]
