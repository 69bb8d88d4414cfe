"""What private voting refuses before a vote is drawn; groups, given parts and classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpal.ledger.entries import EntryKind
from tests.conftest import write_blobs
from tests.flows.calling import call, sentence
from tests.flows.voting import (
    TEACHERS,
    certificate,
    checked,
    entries,
    releases,
    write_campaign,
    write_data,
    write_settings,
)

GROUPED = {"count": TEACHERS, "epochs": 1, "group_column": "patient"}

REFUSALS = [
    ({"teachers": {"count": 500}}, "500 teachers"),
    ({"teachers": {"count": 6, "group_column": "site"}}, "no column 'site'"),
    ({"voting": {"queries": 300}}, "there are 120 public records"),
    ({"voting": {"mechanism": "gnmax"}}, "several labels"),
    ({"voting": {"gate": "unknown", "dependents": ["calm"]}}, "'unknown' is"),
    ({"voting": {"sigma": 0.5}}, "8 is promised"),
    ({"public": {"pool": "private.parquet"}}, "protected record"),
    ({"public": {"pool": "validation.parquet"}}, "a test"),
    ({"voting": {"queries": 120}, "student": {"method": "mixmatch"}}, "all are"),
    ({"student": {"shift": 1}}, "student.shift"),
    ({"teachers": {"count": TEACHERS, "shift": 1}}, "teachers.shift"),
    ({"privacy": {"epsilon": 8.0, "delta": 0.01}}, "below 1/240"),
]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path, groups=30)


@pytest.mark.parametrize(("changes", "says"), REFUSALS, ids=lambda one: str(one)[:40])
def test_what_cannot_be_is_one_sentence(changes, says):
    said = sentence(call("plan", write_settings("refused", **changes)))
    assert says in said, said
    assert not Path("artifacts").exists()


def write_parts(dealt: list[int | None]) -> None:
    """Gives record number i of the pool to teacher dealt[i]; None to nobody."""
    ids = pq.read_table("private.parquet", columns=["id"])["id"].to_pylist()
    names = [None if at is None else f"site-{at}" for at in dealt]
    pq.write_table(pa.table({"id": ids, "teacher": names}), "parts.parquet")


@pytest.mark.parametrize(
    "dealt",
    [[at % (TEACHERS + 1) for at in range(240)], [None, *[at % TEACHERS for at in range(1, 240)]]],
    ids=["one teacher more", "nobody's record"],
)
def test_parts_of_other_teachers_are_refused_before_anything_is_held(dealt):
    """Another number of them is another plan: what is held under the wrong one is lost."""
    write_parts(dealt)
    budgets = pa.table({"teacher": ["site-1"], "epsilon": [1.0]})
    pq.write_table(budgets, "budgets.parquet")
    teachers = {**GROUPED, "partition": "parts.parquet"}
    for more in ({}, {"budgets": "budgets.parquet"}):
        settings = {"teachers": {**teachers, **more}, "voting": {"queries": 30}}
        file = write_settings("refused", **settings)
        assert "parts.parquet" in sentence(call("plan", file))
    assert not Path("artifacts").exists()


@pytest.mark.slow  # tests/data/test_partitions.py looks at each part by itself
@pytest.mark.usefixtures("orchestrated")
def test_given_parts_that_split_a_group_are_refused_each_time_they_are_given():
    """Until they are right; then the account that was held goes on."""
    file = write_settings("given", teachers={**GROUPED, "partition": "parts.parquet"})
    write_parts([at % TEACHERS if at else 1 for at in range(240)])
    for _ in range(2):
        done = call("run", file)
        assert done.returncode == 2
        assert "one group" in done.stderr.splitlines()[-1]
        assert "secret-" not in done.stderr
        assert releases("given") == []
        assert not list(Path("artifacts/given").rglob("teacher-*"))
    write_parts([at % TEACHERS for at in range(240)])
    assert call("run", file).returncode == 0
    assert [one.kind for one in entries("given")] == [
        EntryKind.HOLD,
        EntryKind.RESERVE,
        EntryKind.COMMIT,
    ]
    assert certificate("given")["promise"]["unit"] == "group"
    assert "unit group" in checked("given").stdout
    table = pq.read_table("artifacts/given/confidential/teachers/parts.parquet")
    assert table["teacher"].to_pylist() == [at % TEACHERS for at in range(240)]


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_groups_stay_together_and_are_what_is_promised():
    done = call("run", write_settings("groups", teachers=GROUPED))
    assert done.returncode == 0, done
    table = pq.read_table("artifacts/groups/confidential/teachers/parts.parquet")
    owners = set(zip(table["group"].to_pylist(), table["teacher"].to_pylist(), strict=True))
    assert len(owners) == 30
    assert certificate("groups")["promise"]["unit"] == "group"


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_classes_are_learned_from_votes(tmp_path):
    write_blobs(tmp_path / "private.parquet", 400, seed=1)
    write_blobs(tmp_path / "public.parquet", 200, seed=2, prefix="open")
    write_blobs(tmp_path / "validation.parquet", 200, seed=3, prefix="check")
    teachers = {"count": 20, "epochs": 10, "learning_rate": 0.05}
    changes = {"voting": {"queries": 40, "blocks": 1, "block_size": 10}}
    student = {"epochs": 40, "learning_rate": 0.05, "method": "mixmatch", "unlabeled_weight": 3}
    file = write_settings("classes", teachers=teachers, student=student, **changes)
    done = call("run", file)
    assert done.returncode == 0, done
    document = certificate("classes")
    assert document["rule"]["mechanism"] == "gnmax"
    assert document["promise"]["accountant"] == "rdp"
    assert checked("classes").returncode == 0
    released = pq.read_table("artifacts/classes/votes-1/released.parquet")
    assert np.isin(released["label"].to_numpy(), (0, 1, 2)).all()
    text = Path("artifacts/classes/report.md").read_text(encoding="utf-8")
    assert "accuracy" in text


@pytest.mark.slow
@pytest.mark.usefixtures("orchestrated")
def test_a_campaign_needs_finished_teachers():
    done = call("run", write_campaign("site"))
    assert done.returncode == 2
    assert "labeler.teachers votes is no" in done.stderr
    assert entries("site") == []
