"""Cells in which sites vote: what they answer, what labels buy and cost, and that they can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dpal.book.book_file import parse_book
from dpal.book.book_run import open_book
from dpal.book.cells import cells_of_book
from dpal.book.run_cell import run_cell
from dpal.book.sites_cells import _figures
from dpal.capc.batch_costs import certified_account
from dpal.errors import ConfigError, PlanRejected
from dpal.runs import site_model
from tests.book.books import tiny
from tests.capc.together import terms_of

LABELS, PUBLIC = 3, 60


def written(place: Path) -> None:
    """900 records of three labels, in the order of the first: whoever takes the first is misled."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, (900, LABELS))
    labels = labels[np.argsort(labels[:, 0], kind="stable")]
    features = np.clip((2 * labels - 1) @ rng.normal(0, 0.25, (LABELS, 12))
                       + rng.normal(0, 0.3, (900, 12)), -1, 1)  # fmt: skip
    split = np.where(np.arange(900) % 3 == 0, "test", "train")
    pq.write_table(
        pa.table({"id": [f"r{n}" for n in range(900)], "features": list(features.astype("f4")),
                  "label": list(labels), "split": split}),
        place / "made-up.parquet",
    )  # fmt: skip


def book(**changes: Any) -> dict[str, Any]:
    ways = {
        "before": {"method": "own_records"},
        "after": {"method": "bought_labels", "sites.epsilon": 60},
        "sets": {"method": "bought_labels", "sites.epsilon": 60, "sites.mechanism": "powerset"},
        "poor": {"method": "bought_labels", "sites.epsilon": 0.05},
        "answers": {"method": "released_answers", "sites.epsilon": 60},
        "one label": {
            "method": "released_answers",
            "sites.epsilon": 30,
            "sites.labels": 1,
            "sites.sigma": 2.5,
        },
    }
    table = {
        "name": "table-1", "title": "Labels", "source": "nowhere", "columns": "set",
        "settings": {"sites.count": 12, "sites.own": 8, "sites.sigma": 2.0, **changes},
        "grid": {"ways": ways, "set": ["made-up"]},
    }  # fmt: skip
    about = {"train": "made-up.parquet", "pool": 360, "validation": 60, "public": PUBLIC,
             "judged": 300, "is_what": "made up"}  # fmt: skip
    return tiny(sets={"made-up": about}, tables=[table], seeds=[0], settings={"model.name": "x"})


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("sites")
    written(tmp_path)
    (tmp_path / "book.yaml").write_text(yaml.safe_dump(book()), encoding="utf-8")
    run = open_book(tmp_path / "book.yaml", tmp_path, tmp_path / "artifacts")
    return {order.cell.row: run_cell(order) for order in run.orders()}


def test_bought_labels_make_a_model_better_and_are_charged(results):
    before, after, sets = (results[row] for row in ("before", "after", "sets"))
    for bought in (after, sets):
        assert bought.promise["spent"] <= bought.promise["epsilon"] == 60
        assert bought.told["queries"] % 5 == 0 and bought.told["right_answers"] > 0.8
        assert bought.figures["bac"] > before.figures["bac"]
        assert len(bought.plan) == 64
    assert before.promise == {} and before.curve[0].labels == 8
    assert after.curve[0].labels == 8 + after.told["queries"]
    # Of the first records of the file, which is in the order of its first label, it would be 0.72.
    assert before.figures["bac"] > 0.75


def test_answers_are_counted_as_far_as_epsilon_pays_and_judged_on_the_records_there_are(results):
    answers, one = (results[row] for row in ("answers", "one label"))
    assert answers.told["judged_answers"] == answers.told["queries"] < PUBLIC
    assert one.told["judged_answers"] == PUBLIC < one.told["queries"]
    for told, epsilon in ((answers, 60), (one, 30)):
        assert told.promise["spent"] <= told.promise["epsilon"] == epsilon
        assert set(told.figures) == {"bac", "acc"} and told.figures["bac"] > 0.75
    batches = int(answers.told["queries"]) // 5
    terms = terms_of(12, 3, 12, 5, epsilon=60.0, delta=1e-5, batches=batches)
    assert certified_account("book", terms).epsilon == answers.promise["spent"]
    with pytest.raises(PlanRejected):
        certified_account("book", replace(terms, batches=batches + 1))


def test_what_no_promise_covers_is_a_result_too(results):
    assert "promised" in results["poor"].refused and not results["poor"].figures


def test_figures_are_those_that_a_site_is_told_of_its_model():
    rng = np.random.default_rng(5)
    records = site_model.LabeledFeatures(
        rng.integers(-127, 128, (200, 6), dtype=np.int8),
        rng.integers(0, 2, (200, 2), dtype=np.int8),
    )
    terms = terms_of(3, labels=2, features=6)
    model = site_model.train_heads(records, terms, strengths=(0.1,))
    figures = _figures(model, records)
    assert next(iter(figures)) == "bac" and {"acc", "auc", "map"} <= figures.keys()
    told = site_model.balanced_accuracy(model, records, terms)
    assert figures["bac"] == pytest.approx(told) and 0.5 < told < 0.9


@pytest.mark.parametrize(
    "wrong",
    [{"sites.sigmas": 3}, {"sites.count": 1}, {"sites.mechanism": "x"}, {"sites.labels": 0}],
)
def test_settings_of_sites_are_checked_before_anything_is_run(tmp_path, wrong):
    written(tmp_path)
    with pytest.raises(ConfigError):
        cells_of_book(parse_book(book(**wrong)), tmp_path)


def test_more_labels_than_the_set_has_are_refused(tmp_path):
    written(tmp_path)
    (tmp_path / "book.yaml").write_text(yaml.safe_dump(book(**{"sites.labels": 4})), "utf-8")
    run = open_book(tmp_path / "book.yaml", tmp_path, tmp_path / "artifacts")
    with pytest.raises(ConfigError):
        run_cell(next(iter(run.orders())))


def test_cells_of_other_epsilons_are_other_cells(tmp_path):
    written(tmp_path)
    cells = cells_of_book(parse_book(book()), tmp_path)
    assert len({cell.digest for cell in cells}) == 6
    fewer = cells_of_book(parse_book(book(**{"sites.own": 9})), tmp_path)
    assert not {cell.digest for cell in cells} & {cell.digest for cell in fewer}
