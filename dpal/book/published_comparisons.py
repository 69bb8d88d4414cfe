"""What the cells of a table come to: means, printed numbers beside them, and tested claims."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dpal.book.book_file import SET, BookClaim, BookTable, Printed
from dpal.book.cells import BookCell
from dpal.book.results import CellResult
from dpal.book.statistics import (
    BesidePrinted,
    area_under_learning_curve,
    beside_printed,
    holm_adjusted,
    standard_deviation,
)
from dpal.simulation.paired_comparison import (
    MeanEstimate,
    PairedComparison,
    compare_pairs,
    estimate_mean,
)

LEVEL = 0.05
ALL_SETS = "all sets"  # where a claim is tested over them, each as one observation
_LEAST_SETS = 3
FAR = 2.0  # joint standard errors beyond which a printed value is said to differ


class ClaimVerdict(StrEnum):
    """What our runs say of a claim."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    CONTRADICTED = "contradicted"
    UNTESTED = "untested"


@dataclass(frozen=True, kw_only=True)
class FilledCell:
    """All seeds of one row and column.

    Attributes:
      row, column: where it stands.
      cells: of it, with the result of each that is done and not refused.
      values: the table's figure by seed.
      refused: why it cannot be made; empty where it can.
    """

    row: str
    column: str
    cells: tuple[tuple[BookCell, CellResult], ...]
    values: Mapping[int, float]
    refused: str

    @property
    def figure(self) -> str | None:
        """Which figure the values are; None for the headline."""
        return next((cell.figure for cell, _ in self.cells), None)

    @property
    def mean(self) -> MeanEstimate | None:
        """Mean and 95 % interval over seeds; None before the first."""
        return estimate_mean(list(self.values.values())) if self.values else None

    @property
    def sd(self) -> float | None:
        """Standard deviation over seeds."""
        return standard_deviation(list(self.values.values()))


@dataclass(frozen=True, kw_only=True)
class PrintedBesideOurs:
    """A printed number and our cell of the same place."""

    printed: Printed
    ours: FilledCell
    beside: BesidePrinted

    @property
    def differs(self) -> bool:
        """Whether they are apart by more than two joint standard errors."""
        apart = self.beside.in_errors
        return apart is not None and abs(apart) > FAR


@dataclass(frozen=True, kw_only=True)
class TestedClaim:
    """A claim, tested in one column.

    Attributes:
      claim: what is claimed.
      column: where it was tested.
      comparison: of both rows, seed by seed; None where a row has no run.
      p_value: of the difference, adjusted for all claims of the table; None of one pair.
      verdict: what follows.
    """

    claim: BookClaim
    column: str
    comparison: PairedComparison | None
    p_value: float | None
    verdict: ClaimVerdict


def fill_table(
    table: BookTable, results: Mapping[BookCell, CellResult]
) -> dict[tuple[str, str], FilledCell]:
    """The cells of a table by row and column, in the order of the book.

    Args:
      table: of the book.
      results: those that are there, of all its cells.
    """
    found: dict[tuple[str, str], list[tuple[BookCell, CellResult]]] = {}
    for cell, result in results.items():
        if cell.table == table.name:
            found.setdefault((cell.row, cell.column), []).append((cell, result))
    filled = {}
    for (row, column), made in found.items():
        values = {}
        for cell, result in made:
            if (value := result.figure(cell.figure)) is not None:
                values[cell.seed] = value
        filled[row, column] = FilledCell(
            row=row,
            column=column,
            cells=tuple(made),
            values=values,
            refused=next((result.refused for _, result in made if result.refused), ""),
        )
    return filled


def beside_ours(
    table: BookTable, filled: Mapping[tuple[str, str], FilledCell]
) -> list[PrintedBesideOurs]:
    """Printed numbers whose row and column have a run."""
    scale = 100.0 if table.unit == "percent" else 1.0
    listed = []
    for printed in table.printed:
        ours = filled.get((printed.row, printed.column))
        if ours is None or not ours.values:
            continue
        beside = beside_printed(
            list(ours.values.values()),
            printed.value / scale,
            printed_sd=None if printed.sd is None else printed.sd / scale,
            printed_runs=printed.runs,
        )
        listed.append(PrintedBesideOurs(printed=printed, ours=ours, beside=beside))
    return listed


def judge_claims(
    table: BookTable, filled: Mapping[tuple[str, str], FilledCell]
) -> list[TestedClaim]:
    """Claims of a table in every column where both rows have runs of the same seeds.

    P-values of differences are adjusted for all of them together.
    """
    compared: list[tuple[BookClaim, str, PairedComparison | None]] = []
    for claim in table.claims:
        columns = claim.columns or list(dict.fromkeys(column for _, column in filled))
        listed = [(column, _compared(claim, column, filled)) for column in columns]
        compared += [(claim, column, comparison) for column, comparison in listed]
        if table.columns == SET and claim.within is None:
            compared += [(claim, ALL_SETS, together) for together in _over_sets(claim, filled)]
    p_values = holm_adjusted({
        number: comparison.p_value
        for number, (claim, _, comparison) in enumerate(compared)
        if comparison and comparison.p_value is not None and claim.within is None
        and not _is_settled(table, comparison)
    })  # fmt: skip
    return [
        TestedClaim(
            claim=claim,
            column=column,
            comparison=comparison,
            p_value=p_values.get(number),
            verdict=_verdict(table, claim, comparison, p_values.get(number)),
        )
        for number, (claim, column, comparison) in enumerate(compared)
    ]


def _compared(
    claim: BookClaim, column: str, filled: Mapping[tuple[str, str], FilledCell]
) -> PairedComparison | None:
    """Both rows in one column, on the seeds that both have; None where there is none."""
    way, other = filled.get((claim.row, column)), filled.get((claim.than, column))
    if way is None or other is None or not way.values.keys() & other.values.keys():
        return None
    return compare_pairs(way.values, other.values)


def _over_sets(
    claim: BookClaim, filled: Mapping[tuple[str, str], FilledCell]
) -> Iterator[PairedComparison]:
    """Both rows over all data sets, each of which counts once: by its mean over seeds.

    Source: Demsar (2006), "Statistical comparisons of classifiers over multiple data sets": a data
    set is one observation, as runs on the same set say nothing about others.
    """
    if claim.columns:
        return
    way, other = (
        {cell.column: cell.mean.mean for cell in filled.values() if cell.row == row and cell.mean}
        for row in (claim.row, claim.than)
    )
    if len(way.keys() & other.keys()) >= _LEAST_SETS:
        yield compare_pairs(way, other)


def _is_settled(table: BookTable, comparison: PairedComparison) -> bool:
    """Whether numbers follow from settings alone: there is no chance that a test could count."""
    return table.unit == "count" and comparison.half_width == 0


def _verdict(
    table: BookTable,
    claim: BookClaim,
    comparison: PairedComparison | None,
    p_value: float | None,
) -> ClaimVerdict:
    if comparison is None or comparison.half_width is None:
        return ClaimVerdict.UNTESTED
    if claim.within is None and _is_settled(table, comparison):
        settled = {1: ClaimVerdict.REPRODUCED, -1: ClaimVerdict.CONTRADICTED}
        sign = (comparison.difference > 0) - (comparison.difference < 0)
        return settled.get(sign, ClaimVerdict.NOT_REPRODUCED)
    if claim.within is not None:
        most, half = claim.within / 100, comparison.half_width
        if abs(comparison.difference) + half <= most:
            return ClaimVerdict.REPRODUCED
        outside = abs(comparison.difference) - half > most
        return ClaimVerdict.CONTRADICTED if outside else ClaimVerdict.NOT_REPRODUCED
    if p_value is None or p_value >= LEVEL:
        return ClaimVerdict.NOT_REPRODUCED
    if comparison.difference > 0:
        return ClaimVerdict.REPRODUCED
    return ClaimVerdict.CONTRADICTED


def mean_curve(filled: FilledCell) -> list[tuple[float, MeanEstimate]]:
    """The learning curve of a row: labels, and the mean over seeds, phase by phase.

    Phases that not all seeds have, as runs that stopped early, are left out.
    """
    made = [result for _, result in filled.cells if result.curve]
    if not made:
        return []
    figure, points = filled.figure, []
    for number in range(min(len(result.curve) for result in made)):
        phases = [result.curve[number] for result in made]
        values = [
            value
            for phase in phases
            if (value := phase.figures.get(figure or next(iter(phase.figures), ""))) is not None
        ]
        if values:
            labels = statistics.fmean(phase.labels for phase in phases)
            points.append((labels, estimate_mean(values)))
    return points


def areas_under_curves(filled: FilledCell) -> Sequence[float]:
    """Mean height of each seed's learning curve over labels; empty of runs of one phase."""
    areas = []
    for _, result in filled.cells:
        points = [
            (float(phase.labels), phase.figures.get(filled.figure or next(iter(phase.figures), "")))
            for phase in result.curve
        ]
        known = [(labels, value) for labels, value in points if value is not None]
        if len(known) > 1:
            areas.append(area_under_learning_curve(known))
    return areas
