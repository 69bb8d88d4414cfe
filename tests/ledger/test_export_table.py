"""The ledger as a table that other programs read."""

from __future__ import annotations

import json
from contextlib import closing

import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpal.canonical import canonical_json
from dpal.errors import LedgerError
from dpal.ledger.entries import Entry, EntryKind, seal_entry
from dpal.ledger.export_table import COLUMNS, export_ledger, ledger_table, write_ledger
from dpal.ledger.ledger_store import LedgerStore
from tests.ledger.telling import HOSTILE, tell


@pytest.fixture(scope="module")
def entries(tmp_path_factory) -> list[Entry]:
    root = tmp_path_factory.mktemp("told")
    tell(root)
    with closing(LedgerStore(root / "ledger.sqlite")) as store:
        return store.entries()


def test_every_kind_of_entry_is_told_and_exported(entries):
    assert {entry.kind for entry in entries} == set(EntryKind)
    table = ledger_table(entries)
    assert set(table["kind"]) == {kind.value for kind in EntryKind}
    assert table["sequence"].drop_duplicates().tolist() == [one.sequence for one in entries]


def test_an_entry_can_be_sealed_again_from_its_rows(entries, tmp_path):
    """Nothing is missing: the digest follows from the columns alone."""
    write_ledger(entries, tmp_path / "ledger.parquet")
    rows = pq.read_table(tmp_path / "ledger.parquet").to_pylist()
    for row in rows:
        again = seal_entry(
            sequence=row["sequence"],
            campaign=row["campaign"],
            kind=EntryKind(row["kind"]),
            release=row["release"],
            body=json.loads(row["body"]),
            recorded_at=row["recorded_at"],
            previous=row["previous"],
        )
        assert again.digest == row["digest"]
    assert len(rows) > len(entries)


def test_a_reservation_has_a_row_a_charge_and_a_hold_a_row_a_block(entries):
    table = ledger_table(entries)
    for entry in entries:
        rows = table[table["sequence"] == entry.sequence]
        data = entry.body.get("data") or {"blocks": [None]}
        expected = len(entry.body.get("charges", data["blocks"]))
        assert len(rows) == expected, entry.kind
    held = table[(table["kind"] == "hold") & (table["campaign"] == "second")]
    assert held["block"].tolist() == [0, 1]
    assert held["size"].tolist() == [600, 400]
    assert set(held["target_epsilon"]) == {4.0}
    assert (held["block_epsilon"] <= 4.0).all()


def test_what_each_row_promises_is_its_own_campaigns_or_data_sets(entries):
    """Two promises in one table, entry by entry in turns: no row takes its neighbour's."""
    swapped = [
        seal_entry(
            **{**{key: value for key, value in vars(one).items() if key != "digest"},
               "body": {**one.body, "delta": 1e-7}}
        )
        if one.kind is EntryKind.HOLD and one.campaign == "second" else one
        for one in entries
    ]  # fmt: skip
    turns = sorted(swapped, key=lambda one: (one.kind is not EntryKind.HOLD, one.sequence % 5))
    table = ledger_table(turns)
    assert set(table[table["campaign"] == "first"]["delta"]) == {1e-4}
    assert set(table[table["campaign"] == "second"]["delta"]) == {1e-7}
    limits = table[table["kind"].isin(["register", "limit"])]
    assert sorted(limits["target_epsilon"]) == [8.0, 9.0]
    assert set(limits["delta"]) == {1e-4}
    assert table[table["kind"] == "open"]["delta"].isna().all()


def test_parquet_says_what_its_columns_mean_and_of_which_type_they_are(entries, tmp_path):
    """Also where a column is empty: files of two phases must fit below each other."""
    paths = [tmp_path / "all.parquet", tmp_path / "first.parquet"]
    write_ledger(entries, paths[0])
    write_ledger(entries[:1], paths[1])
    schemas = [pq.read_schema(path) for path in paths]
    assert schemas[0].names == list(COLUMNS)
    assert schemas[0].types == schemas[1].types
    assert "null" not in {str(kind) for kind in schemas[1].types}
    for field in schemas[0]:
        assert field.metadata[b"meaning"].decode() == COLUMNS[field.name][1]


def test_csv_runs_nothing_in_a_spreadsheet_and_loses_nothing(entries, tmp_path):
    export_ledger(entries, tmp_path / "ledger.csv")
    table = pd.read_csv(tmp_path / "ledger.csv", keep_default_na=False)
    assert table.columns.tolist() == list(COLUMNS)
    assert len(table) == len(ledger_table(entries))
    reasons = set(table["reason"]) - {""}
    assert f"'{HOSTILE}" in reasons
    texts = table.select_dtypes(exclude="number").to_numpy().ravel()
    assert not any(str(text).startswith(("=", "+", "-", "@")) for text in texts)
    [limit] = [one for one in entries if one.kind is EntryKind.LIMIT]
    assert canonical_json(limit.body) in set(table["body"])


def test_another_ending_is_refused_and_nothing_is_written(entries, tmp_path):
    with pytest.raises(LedgerError, match=r"neither \.parquet nor \.csv"):
        export_ledger(entries, tmp_path / "ledger.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_a_parameter_does_not_fill_a_column_of_its_name_that_means_something_else():
    """The divergence of votes within a bound is no whole number of 1e-9, which blocks take."""
    event = {"mechanism": "votes_within", "order": 3.5, "divergence": 1.5, "failure": 1e-9}
    entry = seal_entry(
        sequence=1,
        campaign="votes",
        kind=EntryKind.RESERVE,
        release="votes/1",
        body={"charges": [{"cohorts": ["0"], "event": event}]},
        recorded_at="2026-01-01",
        previous="0" * 64,
    )
    (row,) = ledger_table([entry]).to_dict("records")
    assert row["mechanism"] == "votes_within"
    assert pd.isna(row["divergence"])
    assert json.loads(row["body"]) == entry.body
