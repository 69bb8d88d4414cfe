"""Ballots in files are read whole or refused; partitions are disjoint or refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.data.ballot_files import read_ballots
from dpal.data.partitions import require_disjoint
from dpal.errors import DataError, DpalError
from tests.conftest import nothing_released, owner_reads

VOTES = np.array([[[1, 0], [1, 1], [0, 0]], [[0, 1], [0, 1], [1, 1]]], dtype=np.uint8)


def long_table(votes=VOTES, column="ballot", names=("a", "b"), ids=None):
    rows = [(query, who) for query in range(votes.shape[0]) for who in range(votes.shape[1])]
    table = pa.table(
        {
            "id": ids or [f"q{query}" for query, _ in rows],
            "teacher": [f"t{who}" for _, who in rows],
            column: [votes[row].tolist() for row in rows],
        }
    )
    return table.replace_schema_metadata({"class_names": json.dumps(list(names))})


def written(path, table):
    pq.write_table(table, path)
    return path


def test_rows_in_any_order_are_the_same_ballots(tmp_path):
    table = long_table()
    first = read_ballots([written(tmp_path / "one.parquet", table)])
    order = [0, 5, 3, 1, 4, 2]  # the first row says which query comes first
    again = read_ballots([written(tmp_path / "two.parquet", table.take(order))])
    assert first.queries == again.queries == ("q0", "q1")
    assert first.teachers == again.teachers == ("t0", "t1", "t2")
    assert first.names == ("a", "b")
    assert np.array_equal(first.votes, VOTES)
    assert np.array_equal(again.votes, VOTES)
    assert not first.single_label


def test_a_file_may_hold_several_row_groups(tmp_path):
    pq.write_table(long_table(), tmp_path / "b.parquet", row_group_size=1)
    assert np.array_equal(read_ballots([tmp_path / "b.parquet"]).votes, VOTES)


def test_teachers_with_a_file_each_are_named_by_it(tmp_path):
    for who in range(3):
        table = long_table(VOTES[:, who : who + 1]).drop_columns(["teacher"])
        written(tmp_path / f"site-{2 - who}.parquet", table)
    found = read_ballots([tmp_path])
    assert found.teachers == ("site-0", "site-1", "site-2")
    assert np.array_equal(found.votes, VOTES[:, ::-1])


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int8()), pa.large_list(pa.int64()), pa.list_(pa.float32(), 2),
     pa.list_(pa.bool_())],
    ids=str,
)  # fmt: skip
def test_lists_of_any_type_are_read(tmp_path, kind):
    table = long_table()
    lists = table["ballot"].to_pylist()
    if pa.types.is_boolean(kind.value_type):
        lists = [[one == 1 for one in row] for row in lists]
    table = table.set_column(2, "ballot", pa.array(lists, kind))
    assert np.array_equal(read_ballots([written(tmp_path / "b.parquet", table)]).votes, VOTES)


def test_scores_are_a_yes_above_the_cut_only(tmp_path):
    scores = np.array([[[0.5, 0.51], [0.0, 1.0], [0.3, 0.2]]])
    file = written(tmp_path / "s.parquet", long_table(scores, "scores"))
    assert read_ballots([file]).votes.tolist() == [[[0, 1], [0, 1], [0, 0]]]
    assert read_ballots([file], cut=0.25).votes.tolist() == [[[1, 1], [0, 1], [1, 0]]]
    for cut in (np.nan, -0.1, 1.1):
        with pytest.raises(DpalError, match="cut"):
            read_ballots([file], cut=cut)


def test_classes_are_one_number_each(tmp_path):
    chosen = np.array([[0, 2, 1], [2, 2, 2]])
    found = read_ballots([written(tmp_path / "c.parquet", long_table(chosen, "class"))])
    assert found.single_label
    assert found.votes.tolist() == chosen.tolist()


def replaced(column, values):
    table = long_table()
    return table.set_column(table.schema.get_field_index(column), column, pa.array(values))


WRONG = {
    "a column is missing": (long_table().drop_columns(["ballot"]), "the columns"),
    "two kinds": (long_table().append_column("class", [[0] * 6]), "the columns"),
    "a number for a list": (replaced("ballot", [1] * 6), "one number"),
    "lists of words": (replaced("ballot", [["x", "y"]] * 6), "missing number"),
    "no ballot": (replaced("ballot", [[0, 1]] * 5 + [None]), "row without"),
    "a hole": (replaced("ballot", [[0, 1]] * 5 + [[0, None]]), "missing number"),
    "no id": (replaced("id", ["q0"] * 5 + [None]), "without id"),
    "no teacher": (replaced("teacher", ["t0"] * 5 + [None]), "without id"),
    "a part": (replaced("ballot", [[0.0, 0.25]] * 6), "ballot with 0.25"),
    "a negative vote": (replaced("ballot", [[0, -1]] * 6), "ballot with -1"),
    "no names": (long_table().replace_schema_metadata({"class_names": "{"}), "JSON list"),
    "no rows": (long_table().slice(0, 0), "no ballots"),
    "a class in parts": (long_table(np.array([[0.0, 1.0, 1.0]]), "class"), "whole numbers"),
}


@pytest.mark.parametrize(("table", "says"), WRONG.values(), ids=WRONG)
def test_what_is_no_ballot_is_one_sentence(tmp_path, table, says):
    with owner_reads(DataError, match=says) as refused:
        read_ballots([written(tmp_path / "wrong.parquet", table)])
    text = str(refused.value)
    assert nothing_released(refused.value)
    assert "\n" not in text and ". " not in text


def parts(**columns):
    given = {"id": ["r0", "r1", "r2"], "teacher": ["a", "b", "b"], "group": ["x", "y", "y"]}
    return pa.table({**given, **columns})


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (parts(id=["r0", "r0", "r2"]), "1 records were seen"),
        (parts(group=["x", "x", "y"]), "1 groups were seen"),
        (parts(group=["x", "x", "x"]), "1 groups were seen"),
        (parts(teacher=["a", "a", "a"]), "of teacher b"),
        (parts().drop_columns(["teacher"]), "no columns 'id' and 'teacher'"),
        (parts(id=["r0", "r0", "r2"], teacher=["a", None, "b"]), "without id"),
        (parts(id=["r0", None, "r2"]), "without id"),
        (parts(group=["x", None, "y"]), "teacher or group"),
    ],
)
def test_partitions_that_overlap_are_refused(tmp_path, table, says):
    with owner_reads(DataError, match=says):
        require_disjoint(written(tmp_path / "parts.parquet", table), ["a", "b"])


def test_disjoint_partitions_pass_and_a_record_may_be_listed_twice(tmp_path):
    table = pa.concat_tables([parts(), parts().slice(1, 1)])
    require_disjoint(written(tmp_path / "parts.parquet", table), ["a", "b"])
    bare = table.drop_columns(["group"])
    require_disjoint(written(tmp_path / "bare.parquet", bare), ["a"])


def test_classes_are_numbered_from_0(tmp_path):
    for wrong, says in ((-1, "named class -1"), (10**9, "class 1,000,000,000, and")):
        chosen = np.array([[0, wrong, 1]])
        with owner_reads(DataError, match=says) as error:
            read_ballots([written(tmp_path / "c.parquet", long_table(chosen, "class"))])
        said = str(error.value).replace(str(tmp_path), "")
        assert f"{wrong:,}" not in said  # a vote, and others read what an error says


def test_an_empty_ballot_is_none(tmp_path):
    for column in ("ballot", "scores"):
        table = long_table().drop_columns(["ballot"])
        lists = pa.array([[]] * 6, pa.list_(pa.float32()))
        with owner_reads(DataError, match=f"empty {column}"):
            read_ballots([written(tmp_path / "e.parquet", table.append_column(column, lists))])


def test_ballots_that_fit_no_table_are_counted_and_not_laid_out(tmp_path):
    """A teacher and a query for each of 20,000 ballots would be a table of 400 million."""
    count = 20_000
    rows = {"id": [f"q{at}" for at in range(count)], "teacher": [f"t{at}" for at in range(count)]}
    table = pa.table({**rows, "ballot": [[0, 1]] * count})
    with owner_reads(DataError, match="20,000 ballots of 20,000 teachers on 20,000 queries"):
        read_ballots([written(tmp_path / "b.parquet", table)])


def test_teachers_may_be_numbers_or_categories(tmp_path):
    found = read_ballots([written(tmp_path / "n.parquet", replaced("teacher", [0, 1, 2] * 2))])
    assert found.teachers == ("0", "1", "2")
    names = pa.array(["a", "b", "c"] * 2).dictionary_encode()
    table = long_table().set_column(1, "teacher", names)
    found = read_ballots([written(tmp_path / "d.parquet", table)])
    assert found.teachers == ("a", "b", "c")
    with owner_reads(DataError, match="column 'teacher' .*double"):
        read_ballots([written(tmp_path / "f.parquet", replaced("teacher", [0.0, 1.0, 2.0] * 2))])


@pytest.mark.parametrize("column", ["id", "teacher"])
def test_names_that_are_lists_or_no_text_are_a_sentence(tmp_path, column):
    listed = replaced(column, [["a"], ["b"]] * 3)
    with owner_reads(DataError, match=f"column '{column}' .*holds list"):
        read_ballots([written(tmp_path / "lists.parquet", listed)])
    broken = replaced(column, pa.array([b"a", b"\xff"] * 3).view(pa.string()))
    with owner_reads(DataError, match=f"row 1 .*'{column}' .*UTF-8"):
        read_ballots([written(tmp_path / "bytes.parquet", broken)])
