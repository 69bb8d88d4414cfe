"""Results of a book's cells: one JSON file each, written once it is done and read ever after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dpal.errors import DataError
from dpal.files.atomic_writes import write_text

CELLS = "cells"  # folder of the results, which DVC tracks


@dataclass(frozen=True, kw_only=True)
class CellPhase:
    """One point of a learning curve.

    Attributes:
      labels: bought so far, as planned.
      figures: on the test records, in [0, 1], the headline first.
      validation: the headline figure on the records that a run may choose by.
    """

    labels: int
    figures: Mapping[str, float]
    validation: float


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What came of one cell.

    Attributes:
      digest: of the cell.
      method: how it was made.
      set_name: its data set.
      seed: of the cell.
      settings: of its run, beside the defaults of the version that made it.
      figures: of the released model on the test records, in [0, 1], the headline first.
      curve: after each phase; one point of a run without phases.
      told: numbers that the run says of itself, such as how many queries were answered.
      majority: the headline figure of always giving the most frequent answer.
      promise: epsilon, delta, adjacency, unit, and what was spent; empty where nothing is private.
      run: the run's folder, below the book's; empty where there is none.
      plan, certificate: their digests; empty where there are none.
      records: how many, by part.
      chosen: what was chosen on the validation records, by setting.
      seconds: it took, in one process.
      made_on: hardware and versions.
      refused: why it cannot be made; then there are no figures.
    """

    digest: str
    method: str
    set_name: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[CellPhase, ...] = ()
    told: Mapping[str, float] = field(default_factory=dict)
    majority: float | None = None
    promise: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    plan: str = ""
    certificate: str = ""
    records: Mapping[str, int] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    made_on: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""

    def figure(self, name: str | None) -> float | None:
        """A figure by name, the headline for None; None where the cell has none of it."""
        if name is None:
            return next(iter(self.figures.values()), None)
        return self.figures.get(name, self.told.get(name))

    def in_words(self) -> str:
        """The headline figure, or why there is none; and how long it took."""
        if self.refused:
            return f"not possible: {self.refused}"
        name, value = next(iter(self.figures.items()))
        return f"{name.replace('_', ' ')} {100 * value:.1f} %, {self.seconds:.0f} s"


def result_file(folder: Path, digest: str) -> Path:
    """Where a cell's result stands.

    Args:
      folder: of the book.
      digest: of the cell.
    """
    return folder / CELLS / f"{digest[:16]}.json"


def keep_result(folder: Path, result: CellResult) -> Path:
    """Writes a result, all of it or nothing."""
    path = result_file(folder, result.digest)
    write_text(path, json.dumps(asdict(result), indent=1) + "\n")
    return path


def find_result(folder: Path, digest: str) -> CellResult | None:
    """The result of a cell, or None before it is done.

    Raises:
      DataError: its file is damaged, or of another cell.
    """
    path = result_file(folder, digest)
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        curve = tuple(CellPhase(**point) for point in values.pop("curve"))
        result = CellResult(**values, curve=curve)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no result of a cell; delete it, and it is made anew") from error
    if result.digest != digest:
        raise DataError(f"{path} is the result of another cell; delete it, and it is made anew")
    return result
