"""What `dpal data` says of copies of known records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import write_blobs, write_config
from tests.data.copies import write_features
from tests.flows.calling import call, sentence


@pytest.fixture
def copies(workplace, monkeypatch) -> str:
    """A registered data set, and a file with 300 copies of its records and 50 new ones."""
    monkeypatch.setenv("XDG_STATE_HOME", str(workplace / "state"))
    assert call("data", "register", "clinic", "pool.parquet", "--epsilon", "8").returncode == 0
    known = np.array(pq.read_table("pool.parquet")["features"].to_pylist(), dtype=np.float32)
    fresh = write_blobs(Path("fresh.parquet"), 50, seed=77)
    new = np.array(pq.read_table(fresh)["features"].to_pylist(), dtype=np.float32)
    moved = np.nextafter(known[:300], np.float32(0))
    write_features(Path("copies.parquet"), np.concatenate([moved, new]), prefix="new")
    return "copies.parquet"


def test_a_file_with_copies_is_refused_in_one_sentence(copies):
    said = sentence(call("data", "add", "clinic", copies))
    assert said == (
        "dpal: 300 of 350 new rows of copies.parquet look like records of data set clinic under "
        "other ids, and 1% may by coincidence; take them out, give them the ids under which they "
        "are known, or, where they are other people's, say so: dpal data add clinic FILE "
        "--similar REASON (nothing was added or released)"
    )
    assert "needs a reason" in sentence(call("data", "add", "clinic", copies, "--similar", " "))
    assert call("data", "show", "clinic").stdout.count("600") == 1


def test_the_owner_may_say_otherwise(copies):
    done = call("data", "add", "clinic", copies, "--similar", "=measured twice")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "block 1: 50 new records with the whole limit; 300 were known and stay in their blocks",
        "300 of the known ones only look like a record; they share its budget",
    ]
    again = call("data", "add", "clinic", copies)
    assert again.stdout == "nothing new: all 350 records are known to data set clinic\n"


def test_a_delta_that_more_records_made_a_large_one_is_told(copies):
    """It was 1/6,000 for 600 records, and is above one over their number for 20,600."""
    told = "would also allow publishing 3.43"
    assert told not in call("data", "show", "clinic").stdout
    many = write_blobs(Path("many.parquet"), 20_000, seed=78, prefix="m")
    assert told in call("data", "add", "clinic", str(many)).stdout
    assert told in call("data", "show", "clinic").stdout


def test_a_campaign_on_copies_must_name_their_data_set(copies):
    write_config(Path("run.yaml"), data__pool=copies, labeler={"kind": "file"})
    refused = sentence(call("plan", "run.yaml"))
    assert "copies.parquet holds records" in refused


def test_groups_are_told_by_their_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    table = pq.read_table(write_blobs(Path("all.parquet"), 60, seed=1))
    people = pa.array([f"person {row % 20}" for row in range(len(table))])
    pq.write_table(table.append_column("person", people), "grouped.parquet")
    registered = ("data", "register", "clinic", "grouped.parquet", "--epsilon", "8")
    said = call(*registered, "--group", "person").stdout
    assert "block 0: 20 new groups" in said
