"""A part of a source, or some rows of a table, and how many records the whole is known to have."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.importing import idx_files, parts
from dpal.data.importing.importers import importer_of
from dpal.data.importing.known_tables import CHEXPERT_LABELS
from dpal.data.importing.picture_files import MISSING
from dpal.data.importing.recipe import recipe_in
from dpal.data.importing.settings import ImportSettings, Unsure
from dpal.data.importing.write_pool import import_source
from dpal.errors import DataError
from tests.data.importing.test_published_digits import idx

ROWS = ["train"] * 30 + ["val"] * 20 + ["test"] * 10
VIEWS = ("AP", "PA", "LATERAL", "")
RNG = np.random.default_rng(4)


def table(folder: Path, *, texts: bool = False) -> Path:
    """Rows of three parts and four views: a table of numbers, or of texts."""
    lines = ["split,view,label," + ("text" if texts else "a,b")]
    for k, part in enumerate(ROWS):
        record = f"text {k}" if texts else f"{k},{k % 7}"
        lines.append(f"{part},{VIEWS[k % 4]},{'yn'[k % 2]},{record}")
    path = folder / "t.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def pictures(folder: Path) -> Path:
    """The same rows, which name pictures; those of lateral views are not there."""
    lines = ["path,split,view,label"]
    for k, part in enumerate(ROWS):
        lines.append(f"{k}.png,{part},{VIEWS[k % 4]},{'yn'[k % 2]}")
        if k % 4 < 2:
            Image.new("L", (6, 5), k).save(folder / f"{k}.png")
    path = folder / "t.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def imported(place: Path, target: Path, *, like: Path | None = None, **settings):
    earlier = None if like is None else recipe_in(like)
    return import_source(place, target, ImportSettings(**settings), like=earlier)


def unread(rows: int) -> None:
    pytest.fail(f"{rows} records were read")


def ids(target: Path, split: str = "train") -> list[str]:
    held = pq.read_table(target, columns=["id", "split"]).to_pylist()
    return [row["id"] for row in held if row["split"] == split]


@pytest.mark.parametrize("make", [table, lambda to: table(to, texts=True), pictures])
def test_only_rows_of_some_views_stay_and_the_whole_is_counted(tmp_path, make):
    place = make(tmp_path)
    only = (("view", ("AP", "PA")),)
    report = imported(place, tmp_path / "a.parquet", only=only, expected=(30, 30))
    assert report.rows == {"train": 16, "test": 14}
    assert report.dropped == {}
    wanted = [k for k in range(30) if k % 4 < 2]
    named = [f"{k}.png" for k in wanted] if make is pictures else [f"t-{k + 1}" for k in wanted]
    assert ids(tmp_path / "a.parquet") == named
    with pytest.raises(DataError):
        imported(place, tmp_path / "b.parquet", only=only, expected=(16, 14))
    assert not (tmp_path / "b.parquet").exists()
    if make is pictures:
        missing = imported(place, tmp_path / "b.parquet")
        assert missing.dropped == {MISSING: 30}


def test_several_columns_choose_together(tmp_path):
    only = (("view", ("AP", "PA")), ("a", ("0", "1", "2", "5", "56.0", "57")))
    report = imported(table(tmp_path), tmp_path / "a.parquet", only=only, expected=(30, 30))
    assert report.rows == {"train": 3, "test": 2}


@pytest.mark.parametrize("make", [table, lambda to: table(to, texts=True), pictures])
def test_a_part_is_divided_by_a_share_or_stays_whole(tmp_path, make):
    place, target = make(tmp_path), tmp_path / "val.parquet"
    only = (("view", ("AP", "PA")),)
    settings: dict[str, Any] = {"part": "Val", "only": only, "expected": (30, 30)}
    with pytest.raises(DataError, match="--split"):  # before anything is read
        import_source(place, target, ImportSettings(**settings), on_rows=unread)
    report = imported(place, target, held_out=0.4, **settings)
    assert sum(report.rows.values()) == 10
    assert report.rows["test"] > 1
    for part, rows in (("train", 16), ("test", 4)):
        other = tmp_path / f"{part}.parquet"
        whole = imported(place, other, like=target, **{**settings, "part": part})
        assert whole.rows == {"train": rows}
        assert not {*ids(target), *ids(target, "test")} & set(ids(other))


def test_a_share_divides_anew_what_is_counted_as_the_source_divides_it(tmp_path):
    report = imported(table(tmp_path), tmp_path / "a.parquet", held_out=0.9, expected=(30, 30))
    assert report.rows["test"] > 40
    lines = (tmp_path / "t.csv").read_text(encoding="utf-8").replace("split", "kind")
    (tmp_path / "u.csv").write_text(lines, encoding="utf-8")
    imported(tmp_path / "u.csv", tmp_path / "b.parquet", held_out=0.4, expected=(60, 0))
    with pytest.raises(DataError):
        imported(tmp_path / "u.csv", tmp_path / "c.parquet", held_out=0.4, expected=(30, 30))


@pytest.mark.parametrize(
    "settings",
    [{"part": "valley"}, {"only": (("angle", ("AP",)),)}, {"only": (("view", ("none",)),)}],
)
def test_what_chooses_nothing_is_refused(tmp_path, settings):
    with pytest.raises(DataError):
        imported(table(tmp_path), tmp_path / "a.parquet", held_out=0.4, **settings)
    assert not (tmp_path / "a.parquet").exists()


def test_rows_are_chosen_of_tables_alone(tmp_path):
    np.savez(tmp_path / "m.npz", X=np.zeros((9, 3)), y=np.arange(9) % 2)
    with pytest.raises(DataError):
        imported(tmp_path / "m.npz", tmp_path / "a.parquet", held_out=0.4, only=(("X", ("0",)),))


def test_validate_is_held_out():
    assert parts.part_of("validate") == "test"


def test_qmnist_has_the_lost_digits_as_a_part(tmp_path, monkeypatch):
    monkeypatch.setattr(idx_files, "_OF_MNIST", 10)
    pixels = RNG.integers(0, 256, (60, 6, 5), dtype=np.uint8)
    classes = np.arange(60, dtype=np.uint8) % 10
    columns = np.repeat(classes[:, None], 8, axis=1).astype(">i4")
    for what, content in (
        ("images-idx3-ubyte", idx(pixels, 8)),
        ("labels-idx2-int", idx(columns, 0x0C)),
        ("labels-idx1-ubyte", idx(classes, 8)),
    ):
        (tmp_path / f"qmnist-test-{what}.gz").write_bytes(gzip.compress(content))
    one = tmp_path / "qmnist-test-images-idx3-ubyte.gz"
    settings: dict[str, Any] = {
        "held_out": 0.5,
        "expected": (60, 0),
        "classes": tuple("0123456789"),
    }
    for part, rows in (("test10k", 10), ("test50k", 50)):
        target = tmp_path / f"{part}.parquet"
        report = imported(one, target, part=part, **settings)
        assert sum(report.rows.values()) == rows
    assert "qmnist-test-images-idx3-ubyte-10" in {*ids(target), *ids(target, "test")}
    everything = imported(one, tmp_path / "all.parquet", **settings)
    assert sum(everything.rows.values()) == 60


def mimic(folder: Path) -> Path:
    """24 patients with a frontal and a lateral picture each, one without labels, in three parts."""
    place = folder / "mimic-cxr-jpg"
    split, views, found = [], [], []
    for k in range(24):
        subject, study = f"10{k:06}", f"5{k:07}"
        part = ("train", "train", "validate", "test")[k % 4]
        if k != 5:
            found.append(f"{subject},{study},1.0,,-1.0,0.0" + "," * 10)
        for view in ("PA", "LATERAL"):
            split.append(f"{view.lower()}-{k},{study},{subject},{part}")
            views.append(f"{view.lower()}-{k},{subject},{study},chest,{view}")
            path = place / f"files/p10/p{subject}/s{study}/{view.lower()}-{k}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (6, 5), k + 50 * (view == "PA")).save(path)
    for name, head, lines in (
        ("split", "dicom_id,study_id,subject_id,split", split),
        ("metadata", "dicom_id,subject_id,study_id,Procedure,ViewPosition", views[::-1]),
        ("chexpert", ",".join(("subject_id", "study_id", *CHEXPERT_LABELS)), found[::-1]),
    ):
        text = "\n".join([head, *lines]) + "\n"
        (place / f"mimic-cxr-2.0.0-{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return place


def test_mimic_joins_its_tables(tmp_path):
    place, target = mimic(tmp_path), tmp_path / "a.parquet"
    assert importer_of(place).name == "mimic"
    only = (("ViewPosition", ("AP", "PA")),)
    report = imported(place, target, only=only, blank=Unsure.NO, expected=(24, 24))
    assert report.rows == {"train": 12, "test": 12}
    assert report.classes == CHEXPERT_LABELS
    rows = pq.read_table(target).to_pandas().set_index("id")
    path = "files/p10/p10{0:06}/s5{0:07}/pa-{0}.jpg".format
    assert rows.loc[path(4)].label[:5].tolist() == [1, 0, -1, 0, 0]
    assert rows.loc[path(5)].label.tolist() == [-1] * 14  # no report, whatever a blank means
    assert rows.loc[path(5)].group == "10000005"
    pixels = Image.open(Path(place / path(7)))
    assert (rows.loc[path(7)].image, pixels.getpixel((0, 0))) == (
        (place / path(7)).read_bytes(),
        57,
    )


@pytest.mark.parametrize("copied", [True, False])
def test_mimic_refuses_two_tables_of_a_kind_or_one_without_a_column(tmp_path, copied):
    place = mimic(tmp_path)
    packed = place / "mimic-cxr-2.0.0-split.csv.gz"
    unpacked = gzip.decompress(packed.read_bytes()).decode()
    if not copied:
        packed.unlink()
        unpacked = unpacked.replace("study_id", "study")
    (place / "mimic-cxr-2.0.0-split.csv").write_text(unpacked, encoding="utf-8")
    with pytest.raises(DataError):
        imported(place, tmp_path / "a.parquet")


def named(place: Path, cells: list[str]) -> Path:
    """A table that names pictures, one of which may be there."""
    rows = [f"{cell},{'yn'[k // 2 % 2]}" for k, cell in enumerate(cells)]
    (place / "t.csv").write_text("\n".join(["path,label", *rows]) + "\n", encoding="utf-8")
    return place


def some_pictures(folder: Path, count: int = 20) -> list[str]:
    folder.mkdir(exist_ok=True)
    for k in range(count):
        Image.new("L", (6, 5), k).save(folder / f"{k}.png")
    return [f"{k}.png" for k in range(count)]


def test_no_record_has_the_picture_of_another_folder(tmp_path):
    """Half of what the table names was copied."""
    names = some_pictures(tmp_path / "a")
    place = named(tmp_path, [f"{folder}/{name}" for name in names for folder in "ba"])
    report = imported(place, tmp_path / "p.parquet", held_out=0.3)
    assert (sum(report.rows.values()), report.dropped) == (20, {MISSING: 20})
    kept = [*ids(tmp_path / "p.parquet"), *ids(tmp_path / "p.parquet", "test")]
    assert sorted(kept) == sorted(f"a/{name}" for name in names)


def test_a_file_that_could_be_the_picture_of_two_rows_is_refused(tmp_path):
    place = tmp_path / "copied"
    names = some_pictures(place, 60)
    one = named(place, [f"/data/train/{name}" for name in names])
    assert not imported(one, tmp_path / "p.parquet", held_out=0.3).dropped
    both = named(place, [f"/data/{folder}/{name}" for folder in "ab" for name in names])
    with pytest.raises(DataError) as refused:
        imported(both, tmp_path / "q.parquet", held_out=0.3)
    assert "0.png" not in str(refused.value) and "/data/b/0.png" in refused.value.for_owner()
    assert not (tmp_path / "q.parquet").exists()


def test_a_cell_that_is_no_name_of_a_file_is_a_picture_that_is_not_there(tmp_path):
    address = "https://example.org/1.png?signed=" + "a" * 300
    place = named(tmp_path, [*some_pictures(tmp_path), address])
    assert imported(place, tmp_path / "p.parquet", held_out=0.3).dropped == {MISSING: 1}
