"""Teachers are trained in blocks of a pool that is read once; one record moves one of them."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from dpal.config.pate import parse_pate
from dpal.data import pool_by_teacher, readers
from dpal.data.partitions import read_parts
from dpal.ledger.folder_lock import lock_folder
from dpal.runs import teachers
from dpal.runs.ensemble_hold import hold_ensemble
from dpal.runs.prepare_ensemble import Ensemble, plan_ensemble
from dpal.runs.release_votes import release_labels
from dpal.runs.teachers import TEACHERS, deal_records, train_teachers
from tests.flows.voting import settings, write_data

COUNT = 20


def planned(name: str = "votes", **sections: object) -> Ensemble:
    """Twenty teachers with their records dealt out: of groups, so that their sizes differ."""
    values = settings(name, **{"teachers__count": COUNT, "teachers__epochs": 6, **sections})
    ensemble = plan_ensemble(parse_pate(values))
    deal_records(ensemble)
    return ensemble


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path, groups=100)
    table = pq.read_table("private.parquet")
    number = np.minimum(np.arange(240) ** 2 // 400, 99)
    patients = pa.array([f"patient-{patient}" for patient in number])
    column = table.schema.get_field_index("patient")
    pq.write_table(table.set_column(column, "patient", patients), "private.parquet")


GROUPS = {"teachers__group_column": "patient"}


@pytest.fixture
def small_blocks(monkeypatch):
    """Four teachers at a time."""
    monkeypatch.setattr(teachers, "_BLOCK_TEACHERS", 4)


def weights(ensemble: Ensemble) -> list[bytes]:
    return [path.read_bytes() for path in TEACHERS.makes(ensemble)]


def test_the_pool_is_read_once_for_all_teachers_and_its_copy_is_gone(monkeypatch, small_blocks):
    ensemble = planned(**GROUPS)
    sizes = np.bincount(read_parts(ensemble.parts_file))
    assert len(set(sizes.tolist())) > 3  # of groups of several sizes
    read: list[tuple[str, ...]] = []
    real = readers.raw_batches

    def counted(source, columns):
        read.append(tuple(columns))
        return real(source, columns)

    for module in (pool_by_teacher, teachers):
        monkeypatch.setattr(module, "raw_batches", counted)
    train_teachers(ensemble)
    assert read == [("features", "label")]
    assert TEACHERS.is_done(ensemble)
    assert not ensemble.grouped_file.exists()
    assert list(ensemble.folder.scratch.iterdir()) == []


@pytest.mark.parametrize("sections", [{}, GROUPS], ids=["records", "groups"])
@pytest.mark.parametrize("model", [{"name": "logistic"}, {"name": "mlp", "hidden": [6]}], ids=str)
def test_one_record_moves_one_teacher_and_no_bit_of_another(model, sections, small_blocks):
    """Another content of one record, and the same ids: the promise of votes."""
    first = planned("first", model=model, **sections)
    train_teachers(first)
    row = 77
    table = pq.read_table("private.parquet")
    values = np.array(table["features"].to_pylist(), np.float32)
    values[row] = -3 * values[row] + 1
    features = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    at = table.schema.get_field_index("features")
    pq.write_table(table.set_column(at, "features", features), "private.parquet")
    second = planned("second", model=model, **sections)
    train_teachers(second)
    moved = [
        number
        for number, pair in enumerate(zip(weights(first), weights(second), strict=True))
        if len(set(pair)) > 1
    ]
    assert moved == [read_parts(first.parts_file)[row]]
    assert np.array_equal(read_parts(first.parts_file), read_parts(second.parts_file))


@pytest.fixture
def _classes():
    """Records of one class each, the first label that they have."""
    for name in ("private.parquet", "public.parquet", "validation.parquet"):
        table = pq.read_table(name)
        labels = np.array(table["label"].to_pylist()).argmax(axis=1)
        at = table.schema.get_field_index("label")
        pq.write_table(table.set_column(at, "label", pa.array(labels)), name)


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True], ids=["side by side", "alone"])
@pytest.mark.usefixtures("_classes")
def test_a_record_with_which_nobody_can_learn_ends_no_run(alone, monkeypatch, small_blocks):
    """Whether a run fails is seen by everybody, and is in no account."""
    if alone:
        monkeypatch.setattr(teachers, "is_small_head", lambda model, training: False)
    row = 77
    table = pq.read_table("private.parquet")
    values = np.array(table["features"].to_pylist(), np.float32)
    values[row] = 1e30
    features = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    at = table.schema.get_field_index("features")
    pq.write_table(table.set_column(at, "features", features), "private.parquet")
    ensemble = planned("huge", teachers__optimizer="sgd", teachers__learning_rate=0.1)
    with lock_folder(ensemble.folder.root):
        hold_ensemble(ensemble)
        train_teachers(ensemble)
        lost = [
            number
            for number, path in enumerate(TEACHERS.makes(ensemble))
            if not all(tensor.isfinite().all() for tensor in load_file(path).values())
        ]
        assert lost == [read_parts(ensemble.parts_file)[row]]
        release_labels(ensemble)


DIES = """
import os, signal
from pathlib import Path
from dpal.runs import teachers
from tests.runs.test_teachers import GROUPS, planned
teachers._BLOCK_TEACHERS = 4
ensemble = planned("killed", **GROUPS)
real = Path.replace
def dying(path, target):
    if Path(target).name.startswith("teacher-"):
        dying.left -= 1
        if dying.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return real(path, target)
dying.left = {teachers}
Path.replace = dying
teachers.train_teachers(ensemble)
"""


@pytest.mark.slow
@pytest.mark.parametrize("done", [0, 6, COUNT - 1])
def test_killed_they_go_on_with_the_same_copy_and_become_the_same(done, small_blocks, forked):
    undisturbed = planned("undisturbed", **GROUPS)
    train_teachers(undisturbed)
    died = forked.run(DIES.format(teachers=done))
    assert died.returncode == -signal.SIGKILL, died.stderr
    killed = planned("killed", **GROUPS)
    assert TEACHERS.made(killed) == done
    before = killed.grouped_file.stat()
    kept = {path: path.stat().st_ino for path in TEACHERS.makes(killed) if path.exists()}
    train, block = teachers._train_blocks, teachers._trained
    there: list[int] = []
    trained: list[int] = []

    def counted(part, *, on_step):
        trained.append(part.number)
        return block(part, on_step=on_step)

    def looking(ensemble, missing):
        train(ensemble, missing)
        there.append(ensemble.grouped_file.stat().st_ino)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(teachers, "_train_blocks", looking)
        patch.setattr(teachers, "_trained", counted)
        train_teachers(killed)
    assert there == [before.st_ino]  # it was not written again
    sizes = np.bincount(read_parts(killed.parts_file))
    blocks = teachers._blocks(killed, sizes, {*range(COUNT)}, "cpu")
    kept_numbers = {int(path.stem.partition("-")[2]) for path in kept}
    open_blocks = [part.number for part in blocks if not kept_numbers.issuperset(part.teachers)]
    assert trained == open_blocks  # and none of which every teacher was there
    assert weights(killed) == weights(undisturbed)
    assert {path: path.stat().st_ino for path in kept} == kept  # nor was a teacher
    assert not killed.grouped_file.exists()
    assert not list(Path("artifacts/killed").rglob(".staged-*g*.parquet"))


def test_a_copy_of_other_records_is_written_anew():
    ensemble, other = planned("one"), planned("other", teachers__seed=7)
    teachers._group_pool(other, read_parts(other.parts_file))
    ensemble.grouped_file.parent.mkdir(parents=True, exist_ok=True)
    other.grouped_file.replace(ensemble.grouped_file)
    train_teachers(ensemble)
    again = planned("again")
    train_teachers(again)
    assert weights(ensemble) == weights(again)


def test_a_copy_that_somebody_left_behind_is_gone_before_votes_are_released():
    ensemble = planned("left")
    train_teachers(ensemble)
    teachers._group_pool(ensemble, read_parts(ensemble.parts_file))
    train_teachers(ensemble)  # has nothing to do
    assert not ensemble.grouped_file.exists()
    teachers._group_pool(ensemble, read_parts(ensemble.parts_file))
    with lock_folder(ensemble.folder.root):
        hold_ensemble(ensemble)
        release_labels(ensemble)
    assert not ensemble.grouped_file.exists()


def test_which_teachers_are_a_block_follows_from_all_of_them():
    training = planned("sizes").config.teachers.to_training(0)
    sizes = np.array([40, 10, 33, 64, 40, 65, 200, 41])
    companies = teachers._companies(sizes, training, 130)
    # Of one, two, three and seven steps an epoch; at most 130 records together.
    assert companies == [[1], [0, 2], [3, 4], [7], [5], [6]]
    assert teachers._companies(sizes, training, 1) == [[1], [0], [2], [3], [4], [7], [5], [6]]
