"""One cell of a book: a real run with a ledger and a certificate, judged by test records alone."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from dpal.book.book_file import parse_book
from dpal.book.book_run import BookRun, open_book, while_time_is_left
from dpal.book.cells import cells_of_book
from dpal.book.data_set_splits import make_parts
from dpal.book.methods import SELECTING
from dpal.book.results import CellResult, find_result, keep_result, result_file
from dpal.book.run_cell import CellOrder, cell_settings, run_cell
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.read_and_seal import read_certificate
from dpal.certificate.verify import verify_certificate
from dpal.errors import DataError
from dpal.ledger.ledger_store import LedgerStore
from dpal.runs.kinds import folder_of
from dpal.runs.released_phase import released_weights
from tests.book.books import tiny, with_table
from tests.conftest import write_blobs

FOLDER = Path("artifacts/books/tiny")


def orders(values):
    book = parse_book(values)
    return [
        CellOrder(cell=cell, about=book.sets[cell.set_name], folder=FOLDER)
        for cell in cells_of_book(book, Path(), seeds=1)
    ]


def entries():
    with closing(LedgerStore(FOLDER / "runs" / "ledger.sqlite", create=False)) as store:
        return store.entries()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, CellOrder, CellResult]:
    """A private cell that was made: where, what was asked for, and the result."""
    root = tmp_path_factory.mktemp("cell")
    write_blobs(root / "pool.parquet", 600, seed=1)
    write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        [_, order, _] = orders(tiny())
        return root, order, run_cell(order)


def test_a_private_cell_is_a_run_that_can_be_checked(made, monkeypatch):
    root, _, result = made
    monkeypatch.chdir(root)
    certificate = read_certificate((FOLDER / result.run / "certificate.json").read_text("utf-8"))
    assert not any_failed(verify_certificate(certificate, ledger=entries()))
    assert (result.certificate, result.plan) == (
        certificate["digest"], certificate["plan"]["digest"])  # fmt: skip
    assert [phase.labels for phase in result.curve] == [90, 120]
    assert result.figures == result.curve[result.chosen["released_phase"]].figures
    assert result.promise["spent"] <= result.promise["epsilon"] == 8
    assert result.records == {"pool": 400, "validation": 100, "test": 200}
    assert result.made_on["cores"]


def test_the_figure_is_that_of_the_released_weights_on_the_test_records(made, monkeypatch):
    """Computed anew, from files, with numpy."""
    import numpy as np
    import pyarrow.parquet as pq
    from safetensors.numpy import load_file

    root, order, result = made
    monkeypatch.chdir(root)
    parts = make_parts(order.about, order.cell.files, 0, FOLDER / "data")
    weights = load_file(released_weights(folder_of(cell_settings(order, parts))))
    table = pq.read_table(parts.test)
    values = np.stack(table["features"].to_numpy())
    (bias,) = (value for value in weights.values() if value.ndim == 1)
    (matrix,) = (value for value in weights.values() if value.ndim == 2)
    said = (values @ matrix.T + bias).argmax(axis=1)
    assert result.figures["accuracy"] == pytest.approx(
        float((said == table["label"].to_numpy()).mean())
    )


@pytest.mark.slow
def test_made_again_a_cell_pays_for_nothing_again(workplace):
    [order, *_] = orders(tiny())
    first = run_cell(order)
    paid = len(entries())
    again = run_cell(order)
    assert len(entries()) == paid
    assert (again.figures, again.certificate) == (first.figures, first.certificate)


@pytest.mark.slow
def test_runs_on_public_records_add_up_to_nothing_that_anybody_is_told_of(workplace, caplog):
    caplog.set_level("INFO", logger="dpal")
    for order in orders(tiny())[:2]:
        run_cell(order)
    assert any("plan certified" in said for said in caplog.messages)
    assert not any("add_up" in said or "dpal data register" in said for said in caplog.messages)


def test_references_protect_nobody_and_say_so(workplace):
    [*_, order] = orders(tiny())
    result = run_cell(order)
    assert result.promise == {}
    assert (result.run, result.certificate) == ("", "")
    assert result.figures["accuracy"] > 0.9  # three blobs that hardly overlap
    assert result.chosen["learning_rate"] in (0.0003, 0.001, 0.003, 0.01)
    assert not (FOLDER / "runs").exists()


@pytest.mark.parametrize("method", SELECTING)
def test_selection_without_privacy_has_a_curve_and_no_promise(workplace, method):
    grid = {"acquisition": ["margin"], "method": [method], "set": ["blobs"]}
    [order] = orders(with_table(grid=grid, claims=[], printed=[]))
    result = run_cell(order)
    assert [phase.labels for phase in result.curve] == [90, 120]
    assert result.promise == {}


def test_what_no_promise_covers_is_said_and_not_asked_for_again(workplace):
    grid = {"schedule.initial": [1000], "set": ["blobs"]}
    [order] = orders(with_table(grid=grid, claims=[], printed=[]))
    result = run_cell(order)
    assert result.refused
    assert not result.figures
    keep_result(FOLDER, result)
    book = parse_book(with_table(grid=grid, claims=[], printed=[]))
    cells = tuple(cells_of_book(book, Path(), seeds=1))
    assert BookRun(book=book, cells=cells, every=cells, folder=FOLDER).orders() == []


@pytest.mark.slow
def test_rates_follow_from_the_plan_where_the_set_wants_that(workplace):
    book = tiny()
    book["sets"]["blobs"]["logit_noise"] = 1.5
    [_, order, _] = orders(book)
    result = run_cell(order)
    assert result.chosen["learning_rate"] != 1.0
    assert result.chosen["max_grad_norm"] > 0


def test_results_are_kept_and_found(workplace):
    [*_, order] = orders(tiny())
    result = run_cell(order)
    assert find_result(FOLDER, order.cell.digest) is None
    keep_result(FOLDER, result)
    assert find_result(FOLDER, order.cell.digest) == result
    path = result_file(FOLDER, order.cell.digest)
    path.write_text(json.dumps({**json.loads(path.read_text()), "digest": "another"}))
    with pytest.raises(DataError):
        find_result(FOLDER, order.cell.digest)
    path.write_text("{")
    with pytest.raises(DataError):
        find_result(FOLDER, order.cell.digest)


def test_no_cell_is_begun_after_the_time(workplace):
    begun = iter([0.0, 1.0, 59.0, 61.0])
    listed = orders(tiny())
    assert list(while_time_is_left(listed, 60, clock=lambda: next(begun))) == listed[:2]
    assert list(while_time_is_left(listed, None, clock=lambda: 0.0)) == listed


def test_a_book_is_opened_from_its_file(workplace):
    import yaml

    Path("tiny.yaml").write_text(yaml.safe_dump(tiny()), encoding="utf-8")
    run = open_book(Path("tiny.yaml"), Path(), Path("artifacts"), only=["row=random"])
    assert (len(run.cells), len(run.every), run.folder) == (2, 6, FOLDER)
    assert [order.cell.seed for order in run.orders()] == [0, 1]
