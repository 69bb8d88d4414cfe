"""What an import tells of private records, to whom, and what it leaves on a disk: nothing."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpal.data.importing.recipe import Deciders, recipe_from, recipe_in, tells_of_held_out
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.data.pool_files import files_of
from dpal.errors import DataError, StorageError
from dpal.files.atomic_writes import workspace


def imported(place: Path, target: Path, *, like: Path | None = None, **settings):
    wanted = ImportSettings(**settings)
    if like is None:
        return import_source(place, target, wanted)
    return import_source(place, target, wanted, like=recipe_in(like), deciders=Deciders.of(like))


def table(path: Path, rows: range, *, named: bool = True) -> Path:
    head = ["id,age,weight,job,label" if named else "age,weight,job,label"]
    lines = [
        f"{20 + k / 7},{k * 7919 % 10007},{'ab'[k % 2]},{['no', 'yes'][k % 3 == 0]}" for k in rows
    ]
    lines = [f"p{k},{line}" if named else line for k, line in zip(rows, lines, strict=True)]
    path.write_text("\n".join(head + lines) + "\n", encoding="utf-8")
    return path


# Pickles


class Called:
    """Unpickles as a call of what NumPy's pickles name, with arguments that they never have."""

    def __init__(self, function, arguments, state=None):
        self.call = (function, arguments, state)

    def __reduce__(self):
        return self.call if self.call[2] is not None else self.call[:2]


EMPTY = np.zeros(0, np.uint8).__reduce__()


@pytest.mark.parametrize(
    "made",
    [
        Called(np.ndarray, ((1,), np.dtype("u1"), b"A")),
        Called(np.dtype, ("O",)),
        Called(np.dtype, ([("a", "u1")],)),
        Called(EMPTY[0], EMPTY[1], (1, (2, 3072), np.dtype("u1"), False, b"A")),
        Called(EMPTY[0], EMPTY[1], (1, (-1, -3072), np.dtype("u1"), False, b"A" * 3072)),
        Called(EMPTY[0], EMPTY[1], (1, (1, 3072), np.dtype("u1"), False, [object] * 3072)),
        Called(EMPTY[0], (np.dtype, (0,), b"b")),
        np.zeros((1, 3072), np.float64),
        np.zeros((1, 3071), np.uint8),
        {"no": "array"},
        7,
    ],
    ids=[
        "an array",
        "a kind",
        "a kind of fields",
        "too few bytes",
        "sides below 0",
        "objects",
        "no array",
        "fractions",
        "another width",
        "a dictionary",
        "a number",
    ],
)
@pytest.mark.parametrize("where", ["data", "labels"])
def test_a_pickle_makes_nothing_but_arrays_that_it_has_the_bytes_of(tmp_path, made, where):
    """Called as it likes, numpy.ndarray makes objects of whatever addresses a file holds."""
    whole = {"data": np.zeros((1, 3072), np.uint8), "labels": [3]}
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(whole | {where: made}, protocol=4))
    with pytest.raises(DataError):
        imported(tmp_path / "data_batch_1", tmp_path / "p.parquet", held_out=0.5)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("labels", [list, np.array])
def test_a_pickle_of_python_2_or_3_is_read(tmp_path, protocol, labels):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 3072)).astype(np.uint8)
    whole = {"data": np.asfortranarray(pixels), "labels": labels([k % 10 for k in range(30)])}
    content = pickle.dumps(whole, protocol=protocol)
    if protocol == 2:  # Python 2 wrote names as bytes
        content = content.replace(b"X\x02\x00\x00\x00u1", b"U\x02u1")
        content = content.replace(b"X\x01\x00\x00\x00|", b"U\x01|")
    (tmp_path / "data_batch_1").write_bytes(content)
    (tmp_path / "data_batch_2").write_bytes(content)  # nobody asked for that one
    report = imported(tmp_path / "data_batch_1", tmp_path / "p.parquet", held_out=0.4)
    assert sum(report.rows.values()) == 30


@pytest.mark.parametrize("labels", [[99], [-1], ["cat"], [0.5], [1, 2], 3])
def test_labels_of_cifar_are_numbers_of_classes(tmp_path, labels):
    whole = {"data": np.zeros((1, 3072), np.uint8), "labels": labels}
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(whole))
    with pytest.raises(DataError, match="data_batch_1"):
        imported(tmp_path / "data_batch_1", tmp_path / "p.parquet", held_out=0.5)


# Who decided


@pytest.mark.parametrize(
    ("later", "named", "told"),
    [
        (range(100), True, True),  # the same persons
        (range(1000, 1100), True, False),
        (range(60, 160), True, True),  # some of them
        (range(100), False, True),  # nobody says who they are: compared by what they are
        (range(1000, 1100), False, False),
    ],
)
def test_an_import_like_one_of_the_same_records_still_tells(tmp_path, later, named, told):
    first, like = table(tmp_path / "a.csv", range(100), named=named), tmp_path / "a.parquet"
    imported(first, like, held_out=0.3)
    assert tells_of_held_out(like)
    second, target = table(tmp_path / "b.csv", later, named=named), tmp_path / "b.parquet"
    report = imported(second, target, like=like, held_out=0.3)
    assert (tells_of_held_out(target), report.told) == (told, told)
    third = table(tmp_path / "c.csv", range(2000, 2100), named=named)
    imported(third, tmp_path / "c.parquet", like=target, held_out=0.3)
    assert tells_of_held_out(tmp_path / "c.parquet")  # nobody there knows who decided


def test_a_pool_of_a_table_is_not_copied_without_its_mark(tmp_path):
    imported(table(tmp_path / "a.csv", range(100)), tmp_path / "a.parquet", held_out=0.3)
    for place in (tmp_path / "a.parquet", tmp_path):
        with pytest.raises(DataError, match="pool"):
            imported(place, tmp_path / "c" / "c.parquet")


def test_an_import_of_an_earlier_version_is_refused_in_words(tmp_path):
    imported(table(tmp_path / "a.csv", range(100)), tmp_path / "a.parquet", held_out=0.3)
    recipe = recipe_in(tmp_path / "a.parquet")
    assert recipe is not None
    record = json.loads(recipe.to_json())
    for version, word in ((1, "earlier"), (3, "later")):
        with pytest.raises(DataError, match=word):
            recipe_from(json.dumps(record | {"version": version}))


# Messages and names


PRIVATE = "Smith"
XML = "<annotation><object><name>cat</name></object></annotation>"


def voc(folder: Path, content: bytes) -> Path:
    (folder / "voc" / "Annotations").mkdir(parents=True)
    (folder / "voc" / "Annotations" / f"{PRIVATE}.xml").write_bytes(content)
    return folder / "voc"


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def arrays(path: Path, **held) -> Path:
    np.savez(path, **held)
    return path


ROW = f"39, State-gov, {PRIVATE}, <=50K\n"


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (lambda to: written(to / "adult.data", ROW * 20), {"labels": ("income",)}),
        (lambda to: written(to / "adult.csv", ROW * 20), {"labels": ("income",)}),
        (lambda to: written(to / "a.csv", ROW * 20), {"labels": ("income",), "header": True}),
        (lambda to: written(to / "a.csv", f"{PRIVATE},{PRIVATE}\n"), {}),
        (lambda to: written(to / "a.jsonl", f'{{"{PRIVATE}": 1}}\n'), {"labels": ("income",)}),
        (lambda to: voc(to, b"<broken"), {}),
        (lambda to: voc(to, b'<?xml version="1.0" encoding="foo"?><annotation/>'), {}),
        (lambda to: voc(to, b"<html/>"), {}),
        (lambda to: voc(to, b'<!DOCTYPE a [<!ENTITY x "y">]><annotation/>'), {}),
        (lambda to: voc(to, b" " * 2**22 + XML.encode()), {}),
        (lambda to: arrays(to / "a.npz", x=np.full((9, 2), PRIVATE), y=np.arange(9)), {}),
        (lambda to: arrays(to / "a.npz", x=np.full((9, 2), 1j), y=np.arange(9)), {}),
    ],
)  # fmt: skip
def test_no_message_quotes_a_cell_or_the_name_of_a_record(tmp_path, make, settings):
    with pytest.raises(DataError) as error:
        imported(make(tmp_path), tmp_path / "p.parquet", held_out=0.3, **settings)
    assert PRIVATE not in repr(error.value) + str(error.value)


@pytest.mark.parametrize("header", [None, False])
def test_numbers_may_be_names_where_they_count_columns(tmp_path, header):
    lines = ["0,1,y", *(f"{k},{k % 7},{'ab'[k % 2]}" for k in range(60))]
    place = written(tmp_path / "t.csv", "\n".join(lines))
    label = "y" if header is None else "column3"
    report = imported(
        place, tmp_path / "p.parquet", held_out=0.3, header=header, labels=(label,)
    )  # fmt: skip
    assert sum(report.rows.values()) + sum(report.dropped.values()) == 60 + (header is False)


def test_who_decided_that_there_are_names_of_columns_is_remembered(tmp_path):
    lines = [f"{k},{k % 7},{'ab'[k % 2]}" for k in range(60)]
    for ending, head in (("csv", ["x,y,label"]), ("data", [])):
        place = written(tmp_path / f"t.{ending}", "\n".join(head + lines))
        like, header = tmp_path / f"{ending}.parquet", None if head else False
        labels = () if head else ("column3",)
        imported(place, like, held_out=0.3, header=header, labels=labels)
        later = written(tmp_path / "later.data", "\n".join(head + lines[:9]))
        report = imported(later, tmp_path / f"later-{ending}.parquet", like=like, whole=True)
        assert sum(report.rows.values()) == 9


def test_held_out_lines_name_the_fields_of_json(tmp_path):
    """A field that only private lines have would be a feature's name, or be lost in silence."""
    lines = [
        {"id": f"r{k}", "a": k, "label": k % 2, "split": ("test", "train")[k % 3 > 0]}
        | ({"late": k * k} if k > 5 else {})
        | ({PRIVATE: k} if k % 3 else {})
        for k in range(90)
    ]
    place = written(tmp_path / "t.jsonl", "\n".join(map(json.dumps, lines)))
    report = imported(place, tmp_path / "p.parquet")
    features = pq.read_schema(tmp_path / "p.parquet").metadata[b"feature_names"]
    assert json.loads(features) == ["a", "late", "late missing"]
    assert list(report.left_out) == [PRIVATE]
    later = written(tmp_path / "l.jsonl", json.dumps({"id": "x", "a": 3}))
    imported(later, tmp_path / "l.parquet", like=tmp_path / "p.parquet", whole=True)
    found = pq.read_table(tmp_path / "l.parquet")["features"].to_pylist()
    assert found[0][1:] == [0, 1]


# What is left on a disk


def test_what_a_killed_import_left_is_swept_away(tmp_path):
    """A process that is killed sweeps nothing; one that lives keeps what is its own."""
    target, script = tmp_path / "p.parquet", (
        "import sys, time, pathlib\n"
        "from dpal.files.atomic_writes import workspace\n"
        "with workspace(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'raw.parquet').write_text('private')\n"
        "    print('there', flush=True)\n"
        "    time.sleep(60)\n"
    )  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", script, str(target)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        staged = written(tmp_path / ".staged-00000000-p.parquet", "private")
        with workspace(target):
            assert len(list(tmp_path.glob("*/raw.parquet"))) == 1
        assert staged.exists()
        os.kill(process.pid, signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 2
    written(tmp_path / "pool.parquet", "")
    assert files_of(tmp_path) == [tmp_path / "pool.parquet"]  # what is staged is no pool
    with workspace(target) as folder, workspace(folder / "inner.parquet"):
        assert {path.name for path in tmp_path.iterdir()} == {folder.name, "pool.parquet"}
    assert [path.name for path in tmp_path.iterdir()] == ["pool.parquet"]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    place = table(tmp_path / "a.csv", range(100))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        imported(place, tmp_path / "file" / "p.parquet", held_out=0.3)


def test_a_disk_that_is_full_is_said(tmp_path):
    """A limit of a file's size stands for a disk that is full."""
    place = table(tmp_path / "a.csv", range(100))
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (256, hard))
        with pytest.raises(StorageError):
            imported(place, tmp_path / "p.parquet", held_out=0.3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
