"""What cells come to, on results that are given: means, printed numbers, verdicts, the page."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import scipy.stats

from dpal.book.book_file import parse_book
from dpal.book.book_page import book_report
from dpal.book.book_run import BookRun
from dpal.book.cells import cells_of_book
from dpal.book.published_comparisons import (
    ClaimVerdict,
    areas_under_curves,
    beside_ours,
    fill_table,
    judge_claims,
    mean_curve,
)
from dpal.book.results import CellPhase, CellResult, keep_result
from dpal.book.write_book import cells_left_table, write_book
from dpal.reports.charts import Chart
from dpal.reports.render.html import html_of
from dpal.reports.render.markdown import markdown_of
from dpal.reports.report import Table
from tests.book.books import with_table

FOLDER = Path("book")
GRID = {"ways": {"a": {}, "b": {"acquisition": "random"}}, "set": ["blobs"]}


def claim(**changes):
    return {"says": "a is better", "at": "there", "row": "a", "than": "b", **changes}


def opened(figures, **changes):
    """A book whose rows reached figures, by seed; and its results."""
    wanted = {"grid": GRID, "claims": [claim()], "printed": [], **changes}
    book = parse_book({**with_table(**wanted), "seeds": list(range(len(figures["a"])))})
    cells = tuple(cells_of_book(book, Path()))
    results = {cell: result_of(cell, figures[cell.row[0]][cell.seed]) for cell in cells}
    return book.tables[0], results, BookRun(book=book, cells=cells, every=cells, folder=FOLDER)


def result_of(cell, figure):
    curve = tuple(
        CellPhase(labels=labels, figures={"accuracy": value}, validation=value)
        for labels, value in ((100, figure - 0.2), (200, figure))
    )
    return CellResult(
        digest=cell.digest, method=cell.method, set_name=cell.set_name, seed=cell.seed,
        figures={"accuracy": figure, "auc": figure / 2}, curve=curve, seconds=2.0,
        records={"pool": 400, "validation": 100, "test": 200},
        promise={"epsilon": 8, "spent": 7.9, "delta": 1e-5, "adjacency": "zero_out",
                 "unit": "record"},
        run="runs/a-1", plan="abc" * 8, certificate="def" * 8,
        made_on={"processor": "P", "cores": "2", "threads": "1", "torch": "2", "dpal": "0"},
    )  # fmt: skip


BETTER = {"a": [0.81, 0.83, 0.82, 0.84], "b": [0.71, 0.72, 0.70, 0.73]}
ALIKE = {"a": [0.81, 0.79, 0.82, 0.78], "b": [0.80, 0.80, 0.79, 0.81]}


@pytest.mark.parametrize(
    ("figures", "claimed", "verdict"),
    [
        (BETTER, claim(), ClaimVerdict.REPRODUCED),
        (BETTER, claim(row="b", than="a"), ClaimVerdict.CONTRADICTED),
        (ALIKE, claim(), ClaimVerdict.NOT_REPRODUCED),
        (ALIKE, claim(within=5), ClaimVerdict.REPRODUCED),
        (ALIKE, claim(within=1), ClaimVerdict.NOT_REPRODUCED),
        (BETTER, claim(within=1), ClaimVerdict.CONTRADICTED),
        ({"a": [0.8], "b": [0.7]}, claim(), ClaimVerdict.UNTESTED),
    ],
    ids=["better", "other way round", "noise", "within", "perhaps within", "apart", "one run"],
)
def test_a_claim_has_a_verdict(workplace, figures, claimed, verdict):
    table, results, _ = opened(figures, claims=[claimed])
    [tested] = judge_claims(table, fill_table(table, results))
    assert tested.verdict is verdict


COUNTED = {"a": [95.0, 95.0, 95.0], "b": [25.0, 25.0, 25.0]}


@pytest.mark.parametrize(
    ("figures", "row", "unit", "verdict"),
    [
        (COUNTED, "a", "count", ClaimVerdict.REPRODUCED),
        (COUNTED, "b", "count", ClaimVerdict.CONTRADICTED),
        ({"a": [95.0] * 3, "b": [95.0] * 3}, "a", "count", ClaimVerdict.NOT_REPRODUCED),
        ({"a": [95.0, 96.0], "b": [25.0, 90.0]}, "a", "count", ClaimVerdict.NOT_REPRODUCED),
        # Shares of few test records may be equal by chance.
        ({"a": [0.9, 0.9], "b": [0.8, 0.8]}, "a", "percent", ClaimVerdict.NOT_REPRODUCED),
    ],
)
def test_counts_that_no_seed_moves_are_compared_as_they_are(workplace, figures, row, unit, verdict):
    claims = [claim(row=row, than="b" if row == "a" else "a")]
    table, results, run = opened(figures, claims=claims, unit=unit)
    [tested] = judge_claims(table, fill_table(table, results))
    assert tested.verdict is verdict
    for result in results.values():
        keep_result(FOLDER, result)
    ours = next(iter(book_report(run).blocks(Table)))
    assert (ours.rows[0][1] == "95") is (unit == "count" and 96.0 not in figures["a"])


def test_p_values_are_of_the_paired_t_test_and_adjusted_together(workplace):
    table, results, _ = opened(BETTER, claims=[claim(), claim(row="b", than="a")])
    paired = scipy.stats.ttest_rel(BETTER["a"], BETTER["b"]).pvalue
    for tested in judge_claims(table, fill_table(table, results)):
        assert tested.p_value == pytest.approx(2 * paired)


def test_over_all_sets_each_set_is_one_observation(workplace):
    book = with_table(grid={**GRID, "set": list("xyz")}, claims=[claim()], printed=[])
    book["sets"] = dict.fromkeys("xyz", book["sets"]["blobs"])
    parsed = parse_book({**book, "seeds": [0, 1]})
    better = {"x": 0.1, "y": 0.2, "z": 0.15}
    results = {
        cell: result_of(cell, 0.5 + 0.01 * cell.seed + (cell.row == "a") * better[cell.column])
        for cell in cells_of_book(parsed, Path())
    }
    *single, together = judge_claims(parsed.tables[0], fill_table(parsed.tables[0], results))
    assert [tested.column for tested in single] == list("xyz")
    assert together.comparison is not None
    assert together.comparison.pairs == 3
    assert together.comparison.difference == pytest.approx(0.15)
    expected = scipy.stats.ttest_1samp(list(better.values()), 0).pvalue
    assert together.comparison.p_value == pytest.approx(expected)


def test_a_cell_has_the_mean_and_interval_of_its_seeds(workplace):
    table, results, _ = opened(BETTER)
    cell = fill_table(table, results)["a", "blobs"]
    low, high = scipy.stats.t.interval(0.95, 3, loc=0.825, scale=scipy.stats.sem(BETTER["a"]))
    assert cell.mean is not None
    assert cell.mean.mean == pytest.approx(0.825)
    assert cell.mean.half_width == pytest.approx((high - low) / 2)
    assert cell.values == dict(enumerate(BETTER["a"]))


def test_another_figure_may_be_shown(workplace):
    table, results, _ = opened(BETTER, figure="auc")
    assert fill_table(table, results)["a", "blobs"].values[0] == pytest.approx(0.405)


def test_figures_may_stand_across(workplace):
    grid = {**GRID, "figure": ["accuracy", "auc"]}
    table, results, run = opened(
        BETTER, grid=grid, columns="figure", claims=[claim(row="a, blobs", than="b, blobs")]
    )
    filled = fill_table(table, results)
    assert filled["a, blobs", "accuracy"].values == dict(enumerate(BETTER["a"]))
    assert filled["a, blobs", "auc"].values[0] == pytest.approx(0.405)
    assert len({order.cell.digest for order in run.orders()}) == len(run.orders()) == 8


def test_printed_numbers_that_are_far_are_told(workplace):
    printed = [{"row": "a", "column": "blobs", "value": value, "at": "Table 1"}
               for value in (82.4, 70.0)]  # fmt: skip
    table, results, run = opened(BETTER, printed=printed)
    near, far = beside_ours(table, fill_table(table, results))
    assert (near.differs, far.differs) == (False, True)
    error = scipy.stats.sem(BETTER["a"])
    assert far.beside.in_errors == pytest.approx((0.825 - 0.7) / error)
    for result in results.values():
        keep_result(FOLDER, result)
    text = markdown_of(book_report(run))
    assert text.count("joint standard errors") == 2  # a column's title, and one sentence


def test_curves_and_their_areas_are_of_the_phases(workplace):
    table, results, _ = opened(BETTER)
    cell = fill_table(table, results)["a", "blobs"]
    assert [(labels, round(mean.mean, 4)) for labels, mean in mean_curve(cell)] == [
        (100, 0.625), (200, 0.825)]  # fmt: skip
    assert areas_under_curves(cell) == pytest.approx([value - 0.1 for value in BETTER["a"]])


def test_the_page_shows_every_number_and_leads_to_its_file(workplace):
    _, results, run = opened(BETTER)
    for result in results.values():
        keep_result(FOLDER, result)
    page, text = write_book(run)
    html = page.read_text(encoding="utf-8")
    for cell in results:
        # Among the seeds of its row, and among all runs.
        assert html.count(f'href="cells/{cell.digest[:16]}.json"') == 2
        assert f"](cells/{cell.digest[:16]}.json)" in text.read_text(encoding="utf-8")
        assert (FOLDER / "cells" / f"{cell.digest[:16]}.json").is_file()
    assert "82.5 ± " in html
    assert ClaimVerdict.REPRODUCED.value in html
    [chart] = book_report(run).blocks(Chart)
    assert [len(line.band) for line in chart.lines] == [2, 2]
    assert html.count("<polygon") == 2
    assert (FOLDER / "figures" / f"{chart.name}.png").is_file()


def test_columns_that_are_numbers_are_drawn(workplace):
    grid = {**GRID, "labels": [120, 60]}
    _, results, run = opened(BETTER, grid=grid, columns="labels", curves=False, claims=[])
    for result in results.values():
        keep_result(FOLDER, result)
    [chart] = book_report(run).blocks(Chart)
    assert [[place for place, _ in line.points] for line in chart.lines] == [[60, 120]] * 2
    assert chart.lines[0].points[0][1] == pytest.approx(0.825)


def test_a_page_is_written_before_anything_is_done(workplace):
    _, _, run = opened(BETTER)
    page, _ = write_book(run)
    assert "8" in page.read_text(encoding="utf-8")
    [row] = cells_left_table(run).rows
    assert row == ("table-1", "8", "0", "8")


def test_under_noised_claims_say_what_they_truly_are(workplace):
    printed = [{"row": "a", "column": "blobs", "value": 70.0, "at": "Table 1",
                "under_noised": "epsilon 20.2 and not 8"}]  # fmt: skip
    _, results, run = opened(BETTER, printed=printed)
    for result in results.values():
        keep_result(FOLDER, dataclasses.replace(result))
    assert html_of(book_report(run)).count("epsilon 20.2 and not 8") == 2


def test_results_and_pages_may_be_copied(workplace):
    _, results, run = opened(BETTER)
    for result in results.values():
        keep_result(FOLDER, result)
    write_book(run)
    run.export(Path("copied"))
    assert len(list(Path("copied/cells").glob("*.json"))) == 8
    assert {"book.html", "book.md", "figures"} <= {path.name for path in Path("copied").iterdir()}
