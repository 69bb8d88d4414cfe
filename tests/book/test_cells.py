"""Cells of a book: what a grid stands for, what decides a cell, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpal.book.book_file import parse_book, read_book
from dpal.book.cells import cells_of_book, selected_cells
from dpal.book.forecast import forecast_time
from dpal.errors import ConfigError, DataError
from tests.book.books import tiny, with_table
from tests.conftest import ROOT, write_blobs

SAID = {"says": "x", "at": "y", "row": "random", "than": "random"}
BOOKS = sorted((ROOT / "flows" / "configs" / "books").glob("*.yaml"))


def cells(values):
    return cells_of_book(parse_book(values), Path())


def grid(**axes):
    # Who makes a book of their own has no source.
    return with_table(grid={**axes, "set": ["blobs"]}, claims=[], printed=[], source="")


def test_a_cell_is_a_row_a_column_and_a_seed(workplace):
    listed = cells(tiny())
    assert [(cell.row, cell.column, cell.seed) for cell in listed] == [
        (row, "blobs", seed) for seed in (0, 1) for row in ("one phase", "random", "not private")
    ]
    assert len({cell.digest for cell in listed}) == 6
    assert len(cells_of_book(parse_book(tiny()), Path(), seeds=5)) == 15


def test_short_names_stand_for_settings(workplace):
    [cell, *_] = cells(grid(strategy=["naive"], mode=["paper"], epsilon=[3], acquisition=["margin"],
                            **{"training.momentum": [0.5]}))  # fmt: skip
    settings = cell.settings
    assert (settings["strategy"], settings["acquisition"]) == ("naive", "margin")
    assert settings["privacy"] == {"selection": "paper", "epsilon": 3}
    assert settings["training"]["momentum"] == 0.5
    assert cell.row == "naive, paper, 3, margin, 0.5"


def test_labels_keep_the_shape_of_the_schedule_and_one_phase_has_all(workplace):
    by_row = {cell.row: cell.settings["schedule"] for cell in cells(grid(labels=[240, 120]))}
    assert (by_row["240"]["initial"], by_row["240"]["queries"]) == (180, [60])
    assert (by_row["120"]["initial"], by_row["120"]["queries"]) == (90, [30])
    one = next(cell for cell in cells(tiny()) if cell.row == "one phase").settings
    assert (one["schedule"]["initial"], one["schedule"]["queries"]) == (120, [])
    assert one["acquisition"] == "random"


def test_a_seed_is_of_records_and_weights_and_never_of_noise(workplace):
    first, second = (cell.settings for cell in cells(tiny())[1::3])
    assert (first["model"].pop("seed"), second["model"].pop("seed")) == (0, 1)
    assert first == second


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"title": "Another"}, True),
        ({"why": "they are made up, all of them"}, True),
        ({"settings": {**tiny()["settings"], "privacy.epsilon": 3}}, False),
        ({"sets": {"blobs": {**tiny()["sets"]["blobs"], "is_what": "blobs"}}}, True),
        ({"sets": {"blobs": {**tiny()["sets"]["blobs"], "pool": 399}}}, False),
    ],
    ids=["title", "why", "epsilon", "words", "records"],
)
def test_a_digest_is_of_what_decides_the_result(workplace, change, same):
    before, after = ({cell.digest for cell in cells(book)} for book in (tiny(), tiny(**change)))
    assert (before == after) is same
    assert same or not before & after


def test_other_bytes_under_the_same_name_are_another_cell(workplace, tmp_path):
    before = {cell.digest for cell in cells(tiny())}
    other = tmp_path / "other"
    write_blobs(other / "pool.parquet", 600, seed=9)
    write_blobs(other / "validation.parquet", 300, seed=2, prefix="v")
    assert not before & {cell.digest for cell in cells_of_book(parse_book(tiny()), other)}


def test_what_sets_may_have_by_now_renames_no_cell():
    # What 0.2.0 knew of a set. A key that came later has a place only where a set has it.
    known = {"train", "test", "pool", "validation", "judged", "public", "side", "features", "tail"}
    about = parse_book(tiny()).sets["blobs"]
    assert set(about.division) == known | {"logit_noise"}


def test_a_polluted_set_says_what_is_irrelevant_and_is_of_its_file(workplace):
    write_blobs(workplace / "others.parquet", 90, seed=7, prefix="o")
    settings = {"kind": "public", "model.name": "logistic", "choice.labels": 20}
    book = grid(**{"choice.method": ["random"]})
    book["settings"] = settings
    for given in ({"public": 50}, {"public": 50, "pollution": {"file": "others.parquet",
                                                              "share": 0.2}}):  # fmt: skip
        book["sets"]["blobs"] |= given
        cell = cells(book)[0]
        public = cell.settings["public"]
        assert ("irrelevant" in public) is ("pollution" in given)
    assert public == {"pool": "part:public", "provenance_column": "source",
                      "irrelevant": ["pollution"]}  # fmt: skip
    assert cell.files[-1].name == "others.parquet"
    write_blobs(workplace / "elsewhere" / "others.parquet", 90, seed=8, prefix="o")
    (workplace / "others.parquet").unlink()
    with pytest.raises(DataError):
        cells(book)


def test_the_same_run_in_two_tables_is_one_cell(workplace):
    book = tiny()
    book["tables"].append({**book["tables"][0], "name": "table-2"})
    listed = cells(book)
    assert len(listed) == 12
    assert len({cell.digest for cell in listed}) == 6


@pytest.mark.parametrize(
    ("only", "count"),
    [([], 6), (["table-1"], 6), (["row=one, phase,seed=0"], 1), (["row=random"], 2),
     (["row=random,seed=1"], 1), (["seed=0", "method=not_private"], 4)],
    ids=str,
)  # fmt: skip
def test_cells_may_be_selected(workplace, only, count):
    book = tiny()
    ways = book["tables"][0]["grid"]["ways"]
    ways["one, phase"] = ways.pop("one phase")
    assert len(selected_cells(cells(book), only)) == count


@pytest.mark.parametrize("only", ["table-9", "place=here", "row=none"])
def test_a_selection_that_fits_nothing_is_refused(workplace, only):
    with pytest.raises(ConfigError):
        selected_cells(cells(tiny()), [only])


@pytest.mark.parametrize(
    ("book", "named"),
    [
        (tiny(public=False), "public"),
        (tiny(why=" "), "public"),
        (tiny(seeds=[]), "seeds"),
        (tiny(seeds=[0, 1, 0]), "seeds"),
        (with_table(seeds=[1, 1]), "seeds"),
        (grid(color=["red"]), "color"),
        (grid(seed=[0]), "seed"),
        (grid(method=["magic"]), "magic"),
        (grid(epsilon=[]), "epsilon"),
        (with_table(columns="epsilon"), "epsilon"),
        (with_table(source=" ", claims=[]), "source"),
        (with_table(source="", printed=[]), "source"),
        (
            with_table(claims=[{"says": "x", "at": "y", "row": "randon", "than": "random"}]),
            "random",
        ),
        (with_table(grid={"ways": {"a": {}}, "set": ["cubes"]}, claims=[], printed=[]), "cubes"),
        (tiny(tables=[*tiny()["tables"], *tiny()["tables"]]), "table-1"),
        (tiny(colour=1), "colour"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_book_that_says_something_impossible_is_refused(book, named):
    with pytest.raises(ConfigError, match=named):
        parse_book(book)


@pytest.mark.parametrize(
    ("book", "named"),
    [
        (grid(**{"privacy.epsilom": [3]}), "epsilon"),
        (grid(epsilon=[-1]), "epsilon"),
        (tiny(settings={"kind": "vote"}), "vote"),
        (tiny(settings={"kind": "pate"}), "method"),
    ],
    ids=["unknown", "impossible", "kind", "method"],
)
def test_settings_that_no_run_can_have_are_refused_before_anything_runs(workplace, book, named):
    with pytest.raises(ConfigError, match=named):
        cells(book)


def test_a_missing_file_is_named(workplace):
    (workplace / "pool.parquet").unlink()
    with pytest.raises(DataError, match=r"pool\.parquet.*--data"):
        cells(tiny())


def test_time_is_that_of_the_cells_most_alike(workplace):
    listed = cells(tiny())
    assert forecast_time(listed, {}).unknown == 6
    done = {listed[0]: 10.0, listed[1]: 2.0}
    forecast = forecast_time(listed[2:], done)
    # Of seed 1 two rows are known; plain training is taken to be like the mean of the set.
    assert (forecast.cells, forecast.seconds, forecast.unknown) == (4, 10.0 + 2.0 + 2 * 6.0, 0)
    assert "2 at a time" in forecast.in_words(parallel=2)


def test_time_is_told_apart_by_row_before_it_is_by_method(workplace):
    first, second, third, fourth = cells(grid(acquisition=["random", "entropy"]))
    assert forecast_time([third], {first: 10.0, second: 2.0}).seconds == 10.0
    assert forecast_time([fourth], {first: 10.0, second: 2.0}).seconds == 2.0


@pytest.mark.parametrize("file", BOOKS, ids=lambda file: file.stem)
def test_the_shipped_books_are_books(file):
    book = read_book(file)
    assert book.public
    assert all(about.is_what for about in book.sets.values())
    assert any(table.claims or table.printed for table in book.tables)


def test_there_are_books_to_look_at():
    assert BOOKS
