"""What `dpal doctor` finds out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnosis:
    """One thing looked at.

    Attributes:
      what: the thing.
      state: what was found.
      advice: what to do; empty when all is well.
    """

    what: str
    state: str
    advice: str = ""
