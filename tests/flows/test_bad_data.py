"""Files that are not what was meant: what was found, what to do, and nothing spent."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.errors import DataError, ParameterError
from dpal.runs.first_settings import look_at
from dpal.runs.prepare_campaign import open_data
from tests.conftest import write_config
from tests.data.bombs import png
from tests.flows.calling import call, sentence


def change(role: str, name: str, make) -> None:
    """Replaces a column of a file by what is made of it; None takes it out."""
    table = pq.read_table(f"{role}.parquet")
    at = table.schema.get_field_index(name)
    made = None if make is None else make(table)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    columns.pop(name, None)
    if made is not None:
        columns = {**columns, name: made}
    assert at >= 0 or made is not None
    pq.write_table(pa.table(columns), f"{role}.parquet")


def both(name: str, make) -> None:
    for role in ("pool", "validation"):
        change(role, name, make)


def labels(table) -> np.ndarray:
    return np.asarray(table["label"])


def integer_ids() -> None:
    change("pool", "id", lambda table: pa.array(range(len(table))))


def renamed_labels() -> None:
    both("target", lambda table: table["label"])
    both("label", None)


def renamed_in_the_pool() -> None:
    change("pool", "target", lambda table: table["label"])
    change("pool", "label", None)


def labels_from_one() -> None:
    both("label", lambda table: pa.array(labels(table) + 1))


def labels_from_one_in_one_file() -> None:
    change("validation", "label", lambda table: pa.array(labels(table) + 1))


def class_numbers_in_lists() -> None:
    both("label", lambda table: pa.array([[one, 7] for one in labels(table).tolist()]))


def one_class() -> None:
    both("label", lambda table: pa.array(labels(table) * 0))


def a_label_of_a_hash() -> None:
    change("pool", "label", lambda table: pa.array(labels(table) + 10**12))


def two_splits() -> None:
    table = pq.read_table("pool.parquet").append_column("split", [["train"] * 600])
    pq.write_table(table.append_column("split", [["test"] * 600]), "pool.parquet")


def no_text() -> None:
    def make(table):
        ids = [name.encode() for name in table["id"].to_pylist()]
        ids[7] = "\ud800".encode(errors="surrogatepass")
        return pa.array(ids).view(pa.string())

    change("pool", "id", make)


def a_bomb() -> None:
    change("pool", "features", None)
    change("pool", "image", lambda table: pa.array([png(13_000, 13_000)] * len(table)))


def its_own_validation() -> None:
    pq.write_table(pq.read_table("pool.parquet").slice(0, 300), "validation.parquet")


def named(role: str, *names: str) -> None:
    table = pq.read_table(f"{role}.parquet")
    told = {"class_names": json.dumps(names)}
    pq.write_table(table.replace_schema_metadata(told), f"{role}.parquet")


def classes_in_other_orders() -> None:
    named("pool", "red", "green", "blue")
    named("validation", "red", "blue", "green")


WRONG = [
    (integer_ids, ("column 'id' of pool file", "whole numbers", "write them")),
    (renamed_labels, ("validation file", "no column 'label'", "mean 'target'? set data.label_col")),
    (renamed_in_the_pool, ("pool file", "no column 'label'", "mean 'target'?")),
    (labels_from_one, ("run from 1", "subtract 1")),
    (labels_from_one_in_one_file, ("pool run from 0", "validation set from 1;")),
    (class_numbers_in_lists, ("row 0 lists", "number above 1", "0 or 1 for")),
    (one_class, ("one class alone", "of each class")),
    (a_label_of_a_hash, ("label of 100,000", "them anew")),
    (two_splits, ("has 2 columns named 'split'", "give each")),
    (no_text, ("row 7 has a 'id'", "UTF-8")),
    (a_bomb, ("13,000 x 13,000 pixels", "at most 16,777,216 are read")),
    (its_own_validation, ("300 of 300 rows of validation.parquet are",)),
]


@pytest.fixture
def place(workplace: Path) -> Path:
    write_config(workplace / "c.yaml", strategy="naive")
    return workplace


@pytest.mark.parametrize(("spoil", "expected"), WRONG, ids=lambda one: getattr(one, "__name__", ""))
def test_what_was_meant_is_said(place, spoil, expected):
    spoil()
    said = sentence(call("plan", "c.yaml"))
    assert all(part in said for part in expected), said
    assert not Path("artifacts").exists()


def test_a_batch_needs_labels(place, small):
    """The planner caps a batch at what is labeled so far: fine while more labels are to come."""
    schedule = {"initial": 30, "queries": [40], "epochs_per_phase": 1}
    write_config(place / "c.yaml", schedule={**schedule, "batch_size": 71})
    said = sentence(call("plan", "c.yaml"))
    assert "schedule.batch_size 71 is" in said and "70 labels" in said
    assert "to 70" in said
    with pytest.raises(ParameterError):
        open_data(small(schedule={**schedule, "batch_size": 71}))
    open_data(small(schedule={**schedule, "batch_size": 70}))


def test_classes_of_one_file_alone_are_said_to_who_plans(place):
    change("pool", "label", lambda table: pa.array(np.minimum(labels(table), 1)))
    planned = call("plan", "c.yaml")
    said = " ".join(planned.stdout.split())
    assert planned.returncode == 0, planned
    assert "class 2, which" in said
    [remark] = json.loads(call("plan", "c.yaml", "--json").stdout)["remarks"]
    assert remark in said


def test_classes_of_both_files_are_in_one_order(place, small):
    classes_in_other_orders()
    with pytest.raises(DataError):
        open_data(small())
    with pytest.raises(DataError):
        look_at(Path("pool.parquet"), Path("validation.parquet"))
    named("validation", "red", "green", "blue")
    assert open_data(small()).class_names == ("red", "green", "blue")


@pytest.mark.parametrize("spoil", [its_own_validation, labels_from_one, classes_in_other_orders])
def test_what_was_begun_goes_on(place, small, spoil):
    """Campaigns that an earlier version began on such files are not stopped half way."""
    spoil()
    with pytest.raises(DataError):
        open_data(small())
    record = Path("artifacts/small/campaign.json")
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert open_data(small()).rows == 600
