"""The page of a book as a report: printed numbers beside ours, claims, curves, every run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from dpal.book.axes import FIGURE
from dpal.book.book_file import Book, BookTable
from dpal.book.book_run import BookRun
from dpal.book.cells import BookCell
from dpal.book.methods import METHODS, UNPROTECTED
from dpal.book.published_comparisons import (
    ClaimVerdict,
    FilledCell,
    PrintedBesideOurs,
    TestedClaim,
    areas_under_curves,
    beside_ours,
    fill_table,
    judge_claims,
    mean_curve,
)
from dpal.book.results import CELLS, CellResult
from dpal.reports.charts import Chart, Line, axis, style_of
from dpal.reports.report import (
    Block,
    Facts,
    Points,
    Report,
    ReportSection,
    Table,
    Verdict,
    section,
    table,
)
from dpal.simulation.paired_comparison import MeanEstimate, estimate_mean

_MOST_LINES = 8  # of one chart: as many as there are styles
_LEAST_BAND = 3  # seeds of which an interval is drawn
_OF_A_CHOICE = {"irrelevant_chosen"}  # figures of what was chosen, not of a model
_NOTHING = "not run"
_STANDS_IN = (
    "sets here stand in for those of the source: a verdict says what holds on these sets, at this "
    "size and with these models, and nothing about the source's own runs"
)


def book_report(run: BookRun) -> Report:
    """The story of a book, from the results that are there."""
    book, results = run.book, run.results()
    filled = {table.name: fill_table(table, results) for table in book.tables}
    claims = [claim for table in book.tables for claim in judge_claims(table, filled[table.name])]
    made = sum(not result.refused for result in results.values())
    return Report(
        title=book.title,
        about=book.about.strip().rstrip("."),
        promise=(
            "nothing to anybody, as all records are public; every private run keeps its epsilon "
            "all the same, and has a certificate"
        ),
        verdict=_verdict(book, claims, (made, len(results) - made), len(run.every)),
        cards=_cards(claims, results, run),
        sections=(
            *(_table_section(book, table, filled[table.name]) for table in book.tables),
            _how(book, results),
            _every_run(book, results),
        ),
        digests=(("book", book.name),),
    )


def _verdict(
    book: Book, claims: Sequence[TestedClaim], made: tuple[int, int], wanted: int
) -> Verdict:
    """What holds, where `made` counts cells with figures, and those that are not possible."""
    counted = Counter(claim.verdict for claim in claims)
    said = ", ".join(
        f"{counted[verdict]} {verdict}" for verdict in ClaimVerdict if counted[verdict]
    )
    title = f"Claims, column by column: {said}." if said else "No claim is tested yet."
    done, refused = made
    without = f", and {refused:,} are not possible and say why" if refused else ""
    points = [(done + refused == wanted, f"{done:,} of {wanted:,} cells are done{without}")]
    if any(about.stands_for for about in book.sets.values()):
        points.append((False, _STANDS_IN))
    contradicted = [
        (False, f"contradicted in {claim.column}: {claim.claim.says}")
        for claim in claims
        if claim.verdict is ClaimVerdict.CONTRADICTED
    ]
    return Verdict(title, "mind", (*points, *contradicted))


def _cards(
    claims: Sequence[TestedClaim], results: Mapping[BookCell, CellResult], run: BookRun
) -> tuple[tuple[str, str, str], ...]:
    made = [result for result in results.values() if not result.refused]
    counted = Counter(claim.verdict for claim in claims)
    seeds = sorted({cell.seed for cell in run.every})
    hours = sum(result.seconds for result in made) / 3600
    return (
        (f"{len(made):,}", "cells done", f"of {len(run.every):,}"),
        (f"{len(seeds)}", "seeds", "of public records and initial weights, never of noise"),
        (f"{counted[ClaimVerdict.REPRODUCED]}", "claims reproduced",
         f"{counted[ClaimVerdict.CONTRADICTED]} contradicted, "
         f"{counted[ClaimVerdict.NOT_REPRODUCED]} not reproduced"),
        (f"{hours:.1f}", "hours of computing", "all cells together, one thread each"),
    )  # fmt: skip


def _table_section(
    book: Book, about: BookTable, filled: Mapping[tuple[str, str], FilledCell]
) -> ReportSection:
    printed = beside_ours(about, filled)
    claims = judge_claims(about, filled)
    blocks: list[Block] = [_ours(about, filled)]
    if printed:
        blocks.append(_printed_table(book, about, printed))
        blocks.append(Points(tuple(_apart(book, about, one) for one in printed if one.differs)))
    if claims:
        blocks += [_claims_in_words(claims), _claims_table(about, claims)]
    if across := _across(about, filled):
        blocks.append(across)
    if about.curves:
        blocks += _curves(about, filled)
        if areas := _areas(about, filled):
            blocks.append(areas)
    blocks.append(_numbers(about, filled))
    if about.missing:
        blocks.append("What the source has and this table has not:")
        blocks.append(Points(tuple(about.missing)))
    return section(about.title, *blocks, note=f"Source: {about.source}" if about.source else "")


def _ours(about: BookTable, filled: Mapping[tuple[str, str], FilledCell]) -> Table:
    """Means by row and column."""
    rows = list(dict.fromkeys(row for row, _ in filled))
    columns = list(dict.fromkeys(column for _, column in filled))
    counts = sorted({len(cell.values) for cell in filled.values() if cell.values})
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "0"
    unit = " %" if about.unit == "percent" else ""
    named = about.figure or ("figures" if FIGURE in about.grid else "headline figure")
    cells = tuple(
        (row, *(_mean(about, filled.get((row, column))) for column in columns)) for row in rows
    )
    judged = about.unit == "percent" and about.figure not in _OF_A_CHOICE
    where = " on the test records" if judged else ""
    what = f"{named.replace('_', ' ')}{unit}{where}"
    title = f"Ours: {what}, mean ± half of the 95 % interval, n = {runs}"
    return Table(title, ("way", *columns), cells)


def _mean(about: BookTable, cell: FilledCell | None) -> str:
    if cell is None or cell.mean is None:
        return "not possible" if cell is not None and cell.refused else _NOTHING
    return _shown(about, cell.mean)


def _shown(about: BookTable, mean: MeanEstimate) -> str:
    if about.unit == "count" and mean.half_width == 0:  # it follows from settings alone
        return f"{mean.mean:,g}"
    scale = 100 if about.unit == "percent" else 1
    half = "" if mean.half_width is None else f" ± {scale * mean.half_width:.1f}"
    return f"{scale * mean.mean:.1f}{half}"


def _printed_table(book: Book, about: BookTable, printed: Sequence[PrintedBesideOurs]) -> Table:
    scale = 100 if about.unit == "percent" else 1
    rows = []
    for one in printed:
        errors = one.beside.in_errors
        sd = "" if one.printed.sd is None else f" ± {one.printed.sd:g} (sd)"
        rows.append({
            "way": one.ours.row,
            "in": one.ours.column,
            "printed": f"{one.printed.value:g}{sd}",
            "ours": "-" if one.ours.mean is None else _shown(about, one.ours.mean),
            "difference": f"{scale * one.beside.difference:+.1f}",
            "in joint standard errors": "-" if errors is None else f"{errors:+.1f}",
            "printed for": _printed_for(book, one) or "the same data",
            "printed privacy": one.printed.under_noised or "as printed",
            "printed at": one.printed.at,
        })  # fmt: skip
    return table("Beside what was printed", rows)


def _printed_for(book: Book, one: PrintedBesideOurs) -> str:
    """The data that the printed number is of, where ours is of other data."""
    return book.sets[one.ours.cells[0][0].set_name].stands_for


def _apart(book: Book, about: BookTable, one: PrintedBesideOurs) -> str:
    """Why a printed number and ours are apart."""
    scale = 100 if about.unit == "percent" else 1
    unit = " points" if about.unit == "percent" else ""
    errors = one.beside.in_errors or 0.0
    where = "above" if one.beside.difference > 0 else "below"
    exact = (
        ", of which the printed value has no spread and counts as exact"
        if one.beside.printed_is_exact
        else ""
    )
    noised = f" What was printed is {one.printed.under_noised}." if one.printed.under_noised else ""
    other = _printed_for(book, one)
    because = f" That one is of other data: {other}." if other else ""
    return (
        f"{one.ours.row}, {one.ours.column}: ours is {abs(scale * one.beside.difference):.1f}"
        f"{unit} {where} the printed {one.printed.value:g}, {abs(errors):.1f} joint standard errors"
        f"{exact}.{because}{noised}"
    )


def _claims_in_words(claims: Sequence[TestedClaim]) -> Facts:
    """What is claimed, and where, by the numbers that the table has."""
    told = {}
    for tested in claims:
        claim = tested.claim
        noised = f"; {claim.under_noised}" if claim.under_noised else ""
        told[_number(claims, tested)] = f"{claim.says} ({claim.at}{noised})"
    return Facts(tuple((f"claim {number}", words) for number, words in told.items()))


def _number(claims: Sequence[TestedClaim], tested: TestedClaim) -> int:
    listed = list(dict.fromkeys(one.claim.says for one in claims))
    return listed.index(tested.claim.says) + 1


def _claims_table(about: BookTable, claims: Sequence[TestedClaim]) -> Table:
    rows = []
    for tested in claims:
        claim, comparison = tested.claim, tested.comparison
        stated = "-" if claim.points is None else f"{claim.points:+.2f} points"
        if claim.within is not None:
            stated = f"within {claim.within:g} points"
        rows.append({
            "claim": f"claim {_number(claims, tested)}",
            "in": tested.column,
            "printed": stated,
            "ours": "-" if comparison is None else _difference(about, comparison.difference,
                                                                comparison.half_width),
            "pairs": "-" if comparison is None else str(comparison.pairs),
            "p, Holm": "-" if tested.p_value is None else f"{tested.p_value:.3f}",
            "verdict": tested.verdict.value,
        })  # fmt: skip
    return table("Claims, tested seed by seed", rows)


def _difference(about: BookTable, difference: float, half: float | None) -> str:
    if about.unit == "count":
        return f"{difference:+,g}" + (f" ± {half:.1f}" if half else "")
    more = "" if half is None else f" ± {100 * half:.1f}"
    return f"{100 * difference:+.1f}{more} points"


def _curves(about: BookTable, filled: Mapping[tuple[str, str], FilledCell]) -> list[Chart]:
    """One chart a column: test figure over labels, one line a way, with its interval."""
    charts = []
    for number, column in enumerate(dict.fromkeys(column for _, column in filled)):
        drawn = [
            (cell.row, points)
            for cell in filled.values()
            if cell.column == column
            and (not about.drawn or cell.row in about.drawn)
            and len(points := mean_curve(cell)) > 1
        ][:_MOST_LINES]
        if drawn:
            charts.append(_curve_chart(f"{about.name}-{number}", column, drawn, about))
    return charts


def _across(about: BookTable, filled: Mapping[tuple[str, str], FilledCell]) -> Chart | None:
    """Means over the columns, one line a row, where columns are numbers such as of labels."""
    columns = list(dict.fromkeys(column for _, column in filled))
    if len(columns) < 2 or not all(map(_is_number, columns)):
        return None
    drawn: list[tuple[str, Sequence[tuple[float, MeanEstimate]]]] = []
    for row in dict.fromkeys(row for row, _ in filled):
        cells = [(float(column), filled.get((row, column))) for column in columns]
        points = [(place, cell.mean) for place, cell in cells if cell and cell.mean]
        if points and (not about.drawn or row in about.drawn):
            drawn.append((row, sorted(points, key=lambda point: point[0])))
    named = about.columns.rpartition(".")[2].replace("_", " ")
    shown = (about.figure or "test figure").replace("_", " ")
    return _chart(f"{about.name}-across", about.title, drawn[:_MOST_LINES], named, shown)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _curve_chart(
    name: str,
    column: str,
    drawn: Sequence[tuple[str, Sequence[tuple[float, MeanEstimate]]]],
    about: BookTable,
) -> Chart:
    shown = (about.figure or "test figure").replace("_", " ")
    return _chart(name, column, drawn, "labels", f"{column}: {shown}")


def _chart(
    name: str,
    title: str,
    drawn: Sequence[tuple[str, Sequence[tuple[float, MeanEstimate]]]],
    across: str,
    shown: str,
) -> Chart:
    lines = tuple(
        Line(
            name=row,
            points=tuple((labels, mean.mean) for labels, mean in points),
            style=style_of(number),
            band=_band([mean for _, mean in points]),
        )
        for number, (row, points) in enumerate(drawn)
    )
    places = [place for line in lines for place, _ in line.points]
    # By the means: an interval of few seeds may be wider than all that there is to see.
    heights = [value for line in lines for _, value in line.points]
    room = max(0.02, 0.15 * (max(heights) - min(heights)))
    ends = ", ".join(f"{line.name} {100 * line.points[-1][1]:.1f} %" for line in lines)
    return Chart(
        name=name,
        title=title,
        lines=lines,
        x=axis(across, min(places), max(places)),
        y=axis(shown, max(0.0, min(heights) - room), min(1.0, max(heights) + room), percent=True),
        alt=f"{title}: {shown} by {across}; at the end {ends}",
        below="mean over seeds, 95 % interval shaded from three seeds on",
    )


def _band(means: Sequence[MeanEstimate]) -> tuple[tuple[float, float], ...]:
    """Ends of the intervals; none of two seeds, whose interval hides all that there is to see."""
    known = [(mean.mean, mean.half_width) for mean in means
             if mean.runs >= _LEAST_BAND and mean.half_width is not None]  # fmt: skip
    if len(known) < len(means):
        return ()
    return tuple((mean - half, mean + half) for mean, half in known)


def _areas(about: BookTable, filled: Mapping[tuple[str, str], FilledCell]) -> Table | None:
    """Mean height of learning curves."""
    columns = list(dict.fromkeys(column for _, column in filled))
    rows = []
    for row in dict.fromkeys(row for row, _ in filled):
        cells = []
        for column in columns:
            cell = filled.get((row, column))
            areas = areas_under_curves(cell) if cell else []
            cells.append(_shown(about, estimate_mean(areas)) if areas else "-")
        if any(shown != "-" for shown in cells):
            rows.append((row, *cells))
    if not rows:
        return None
    title = "Area under the learning curve: mean height over labels, %"
    return Table(title, ("way", *columns), tuple(rows))


def _numbers(about: BookTable, filled: Mapping[tuple[str, str], FilledCell]) -> Table:
    """Every seed of every cell, each leading to the file that says all of it."""
    seeds = sorted({cell.seed for one in filled.values() for cell, _ in one.cells})
    scale = 100 if about.unit == "percent" else 1
    rows, links = [], []
    for one in filled.values():
        by_seed = {cell.seed: cell for cell, _ in one.cells}
        sd = "-" if one.sd is None else f"{scale * one.sd:.2f}"
        values, places = [], []
        for seed in seeds:
            cell = by_seed.get(seed)
            value = one.values.get(seed)
            values.append("-" if value is None else f"{scale * value:.2f}")
            places.append("" if cell is None else f"{CELLS}/{cell.digest[:16]}.json")
        rows.append((one.row, one.column, *values, sd))
        links.append(("", "", *places, ""))
    return Table(
        "Every seed; a number leads to its file, which names its run, plan and certificate",
        ("way", "in", *(f"seed {seed}" for seed in seeds), "sd"),
        tuple(rows),
        links=tuple(links),
    )


def _how(book: Book, results: Mapping[BookCell, CellResult]) -> ReportSection:
    used = sorted({cell.set_name for cell in results})
    sets = tuple((name, _set_in_words(book, name, results)) for name in used)
    machines = Counter(
        f"{result.made_on['processor']}, {result.made_on['cores']} cores, "
        f"{result.made_on['threads']} thread a run, PyTorch {result.made_on['torch']}, "
        f"dpal {result.made_on['dpal']}"
        for result in results.values()
        if result.made_on
    )
    methods = {cell.method for cell in results}
    return section(
        "How these numbers were made",
        book.protocol,
        f"Public records alone: {book.why}. Seeds decide which public records are the pool, and "
        "initial weights; noise and draws come from the secure generator and are never seeded, so "
        "that figures come out a little different each time.",
        "Intervals are Student's t intervals over seeds, 95 %. Differences are taken seed by seed; "
        "p-values are of the paired t test, adjusted after Holm for all claims of a table. A claim "
        "is reproduced where the difference is as claimed and its adjusted p-value below 0.05, "
        "contradicted where it is below 0.05 the other way round, and not reproduced in between. "
        "Over all sets, each set is one observation, by its mean over seeds. A claim that two are "
        "alike is reproduced where the whole interval lies within the margin.",
        Facts(tuple((name.replace("_", " "), text) for name, text in METHODS.items()
                    if name in methods)),
        Facts(sets),
        Facts(tuple((f"{count:,} cells", machine) for machine, count in machines.items())),
    )  # fmt: skip


def _set_in_words(book: Book, name: str, results: Mapping[BookCell, CellResult]) -> str:
    about = book.sets[name]
    counts = next(result.records for cell, result in results.items() if cell.set_name == name)
    parts = ", ".join(f"{count:,} {part}" for part, count in counts.items())
    stands = f" It stands in for {about.stands_for}." if about.stands_for else ""
    return f"{about.is_what.rstrip('.')}; records: {parts}.{stands}"


def _every_run(book: Book, results: Mapping[BookCell, CellResult]) -> ReportSection:
    rows, links, seen = [], [], set()
    for cell, result in results.items():
        if cell.digest in seen:
            continue
        seen.add(cell.digest)
        promise = result.promise
        protects = "protects nobody" if cell.method in UNPROTECTED else "-"
        rows.append((
            f"{cell.row}, {cell.column}, seed {cell.seed}",
            f"{promise['spent']:.4f} of {promise['epsilon']:g}" if promise else protects,
            result.run or (f"not possible: {result.refused}" if result.refused else "-"),
            result.plan[:12] or "-",
            result.certificate[:12] or "-",
            f"{result.seconds:.0f}",
        ))  # fmt: skip
        links.append((f"{CELLS}/{cell.digest[:16]}.json", *[""] * 5))
    columns = ("cell", "epsilon", "run", "plan", "certificate", "seconds")
    return section(
        "Every run",
        Table("", columns, tuple(rows), links=tuple(links)),
        note="Folders of runs are below the book's own, artifacts/books/" + book.name
        + ". A certificate is checked by: dpal verify FOLDER",
    )  # fmt: skip
