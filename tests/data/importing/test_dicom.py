"""DICOM files keep their levels, and whose they are does not leave in clear."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pydicom
import pytest
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

from dpal.data.importing.dicom import COMPRESSED, SEVERAL
from dpal.data.importing.picture_files import UNREADABLE
from dpal.data.importing.recipe import recipe_in
from dpal.data.importing.settings import ImportSettings, PictureRule
from dpal.data.importing.write_pool import import_source
from dpal.data.sources import Content, Role, open_source
from dpal.errors import DataError

SAMPLES = Path(pydicom.__file__).parent / "data" / "test_files"
RAMP = np.arange(0x10000, dtype=np.uint16).reshape(256, 256)


def dicom(path: Path, levels: np.ndarray, *, bits: int, **elements) -> Path:
    """Writes a file of grey levels; `elements` are further ones, by keyword."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    content = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    content.Rows, content.Columns = levels.shape
    content.SamplesPerPixel = 1
    content.PhotometricInterpretation = "MONOCHROME2"
    content.PixelRepresentation = 0
    content.BitsAllocated = 8 * levels.dtype.itemsize
    content.BitsStored, content.HighBit = bits, bits - 1
    content.PixelData = levels.tobytes()
    for keyword, value in elements.items():
        setattr(content, keyword, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    content.save_as(path)
    return path


def imported(folder: Path, target: Path, *, like=None, **settings):
    report = import_source(folder, target, ImportSettings(held_out=0.5, **settings), like=like)
    return report, pq.read_table(target)


def stored(table) -> list[np.ndarray]:
    return [np.asarray(Image.open(io.BytesIO(each))) for each in table["image"].to_pylist()]


def of_two_classes(folder: Path, levels: np.ndarray, *, files: int = 12, **elements) -> Path:
    for number in range(files):
        dicom(folder / f"{'ab'[number % 2]}" / f"{number}.dcm", levels, **elements)
    return folder


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
@pytest.mark.parametrize("inverted", [False, True])
def test_every_level_is_kept_and_large_is_bright(tmp_path, bits, inverted):
    kind = np.uint8 if bits == 8 else np.uint16
    levels = (RAMP >> (16 - bits)).astype(kind)
    photometric = "MONOCHROME1" if inverted else "MONOCHROME2"
    folder = of_two_classes(
        tmp_path / "d", levels, bits=bits, PhotometricInterpretation=photometric
    )
    report, table = imported(folder, tmp_path / "p.parquet")
    assert (report.content, report.classes, sum(report.rows.values())) == (
        Content.IMAGE, ("a", "b"), 12,
    )  # fmt: skip
    white = 2**bits - 1
    expected = white - levels.astype(np.int64) if inverted else levels.astype(np.int64)
    for found in stored(table):
        shift = 0 if bits == 8 else 16 - bits
        assert np.array_equal(found.astype(np.int64), expected << shift)
        assert len(np.unique(found)) == 2**bits
    source = open_source(tmp_path / "p.parquet", Role.POOL, label_column="label")
    assert source.content is Content.IMAGE


def test_a_person_may_say_that_16_bits_hold_12(tmp_path):
    levels = RAMP >> np.uint16(4)
    folder = of_two_classes(tmp_path / "d", levels, bits=16)
    _, table = imported(folder, tmp_path / "p.parquet", picture_rule=PictureRule(bits=12))
    assert np.array_equal(stored(table)[0], levels << np.uint16(4))


def test_whole_slopes_bring_values_to_their_units(tmp_path):
    levels = RAMP >> np.uint16(4)
    scaled = {"RescaleSlope": 2, "RescaleIntercept": 100}
    folder = of_two_classes(tmp_path / "d", levels, bits=12, **scaled)
    _, table = imported(folder, tmp_path / "p.parquet")
    # Up to 2 * 4095 + 100 are 14 bits.
    assert np.array_equal(stored(table)[0], (2 * levels + 100) << np.uint16(2))


@pytest.mark.parametrize(
    "scaled",
    [
        {"RescaleIntercept": -1024},
        {"RescaleSlope": 0.5},
        {"RescaleSlope": 2},
        {"PixelRepresentation": 1},
    ],
    ids=["below 0", "fractions", "above 16 bits", "signed"],
)
def test_what_is_no_whole_number_of_16_bits_wants_a_range(tmp_path, scaled):
    levels = np.arange(256, dtype=np.uint16).reshape(16, 16)
    bits = {"RescaleSlope": 1, "RescaleIntercept": 0} | scaled
    folder = of_two_classes(tmp_path / "d", levels, bits=16, **bits)
    with pytest.raises(DataError, match="--range"):
        imported(folder, tmp_path / "p.parquet")
    assert not (tmp_path / "p.parquet").exists()
    _, table = imported(folder, tmp_path / "p.parquet", value_range=(-1024, 64511))
    values = levels * float(bits["RescaleSlope"]) + float(bits["RescaleIntercept"])
    assert np.array_equal(stored(table)[0], np.rint(values + 1024).astype(np.uint16))


def test_a_scan_that_ships_with_pydicom_by_its_units(tmp_path):
    for kind in "ab":
        (tmp_path / "d" / kind).mkdir(parents=True)
        for number in range(6):
            shutil.copy(SAMPLES / "CT_small.dcm", tmp_path / "d" / kind / f"{number}.dcm")
    report, table = imported(tmp_path / "d", tmp_path / "p.parquet", value_range=(-1024, 64511))
    file = pydicom.dcmread(SAMPLES / "CT_small.dcm")
    units = file.pixel_array.astype(np.int64) * int(file.RescaleSlope) + int(file.RescaleIntercept)
    assert np.array_equal(stored(table)[0].astype(np.int64) - 1024, units)
    assert "PatientID" in report.left_out
    recipe = recipe_in(tmp_path / "p.parquet")
    _, later = imported(tmp_path / "d", tmp_path / "q.parquet", like=recipe)  # as for predictions
    assert np.array_equal(stored(later)[0], stored(table)[0])


@pytest.mark.parametrize(
    "name",
    [
        "SC_rgb_small_odd.dcm",
        "SC_rgb_rle.dcm",
        "SC_rgb_dcmtk_+eb+cr.dcm",
        "SC_rgb_dcmtk_+eb+cy+np.dcm",
        "SC_ybr_full_422_uncompressed.dcm",
        "examples_palette.dcm",
    ],
)
def test_colours_become_rgb(tmp_path, name):
    folder = tmp_path / "d"
    for kind in "ab":
        (folder / kind).mkdir(parents=True)
        for number in range(6):
            shutil.copy(SAMPLES / name, folder / kind / f"{number}.dcm")
    _, table = imported(folder, tmp_path / "p.parquet")
    found = stored(table)[0]
    assert (found.ndim, found.shape[-1], found.dtype.name) == (3, 3, "uint8")
    if name.startswith("SC_") and "odd" not in name:  # bars of pure colours, the first is red
        assert np.abs(found[5, 5].astype(int) - [255, 0, 0]).max() < 4


# Whose they are


@pytest.fixture
def of_people(tmp_path) -> Path:
    """Eighty files of forty people, so many that chance holds some of them out."""
    levels = np.zeros((4, 4), np.uint8)
    for number in range(80):
        dicom(tmp_path / "d" / "ab"[number % 2] / f"{number}.dcm", levels, bits=8,
              PatientID=f"MRN-{number // 2:04d}")  # fmt: skip
    return tmp_path / "d"


def people(table) -> list[list[int]]:
    """Numbers of files by group."""
    found: dict[str, list[int]] = {}
    for name, group in zip(table["id"].to_pylist(), table["group"].to_pylist(), strict=True):
        found.setdefault(group, []).append(int(Path(name).stem))
    return sorted(sorted(files) for files in found.values())


def test_records_of_a_person_stay_together_under_another_name(of_people, tmp_path):
    report, table = imported(of_people, tmp_path / "p.parquet", group="PatientID")
    assert report.grouped
    assert people(table) == [[first, first + 1] for first in range(0, 80, 2)]
    names = set(table["group"].to_pylist())
    assert not any("MRN" in name for name in names)
    assert b"MRN-" not in (tmp_path / "p.parquet").read_bytes()
    parts = table.to_pandas().groupby("group").split.nunique()
    assert parts.max() == 1
    _, other = imported(of_people, tmp_path / "q.parquet", group="PatientID")
    assert not names & set(other["group"].to_pylist())  # a key of its own


def test_a_person_is_named_where_that_is_asked_for(of_people, tmp_path):
    _, table = imported(of_people, tmp_path / "p.parquet", group="PatientID", groups_in_clear=True)
    assert set(table["group"].to_pylist()) == {f"MRN-{number:04d}" for number in range(40)}


def test_without_being_asked_nobody_is_named(of_people, tmp_path):
    report, table = imported(of_people, tmp_path / "p.parquet")
    assert "group" not in table.column_names
    assert "PatientID" in report.left_out
    assert b"MRN-" not in (tmp_path / "p.parquet").read_bytes()


@pytest.mark.parametrize("group", ["PatientID", "Nonsense"])
def test_groups_that_files_do_not_have_are_refused(tmp_path, group):
    folder = of_two_classes(tmp_path / "d", np.zeros((4, 4), np.uint8), bits=8)
    with pytest.raises(DataError, match=group):
        imported(folder, tmp_path / "p.parquet", group=group)


def test_pictures_that_say_nothing_of_people_have_no_groups(tmp_path):
    for number in range(8):
        path = tmp_path / "d" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4)).save(path)
    with pytest.raises(DataError, match="PatientID"):
        imported(tmp_path / "d", tmp_path / "p.parquet", group="PatientID")


# What is left out, and what is refused


def test_what_cannot_be_read_is_counted_by_its_reason(tmp_path):
    folder = of_two_classes(tmp_path / "d", np.zeros((100, 100), np.uint8), bits=8)
    odd = folder / "a"
    for name in (
        "JPEGLSNearLossless_08.dcm", "JPGExtended.dcm", "image_dfl.dcm",
        "SC_rgb_rle_2frame.dcm", "MR_truncated.dcm", "SC_rgb_rle_32bit.dcm",
    ):  # fmt: skip
        shutil.copy(SAMPLES / name, odd / name)
    content = (odd / "0.dcm").read_bytes()
    (odd / "cut.dcm").write_bytes(content[:400])
    report, table = imported(folder, tmp_path / "p.parquet")
    assert table.num_rows == 12
    assert report.dropped == {COMPRESSED: 3, SEVERAL: 1, UNREADABLE: 3}


def test_a_table_may_name_dicom_files(tmp_path):
    folder = of_two_classes(tmp_path / "d", np.zeros((4, 4), np.uint8), bits=8)
    rows = "".join(f"{'ab'[k % 2]}/{k}.dcm,{k % 2},p{k // 2}\n" for k in range(12))
    (folder / "labels.csv").write_text("path,label,patient\n" + rows)
    report, table = imported(folder, tmp_path / "p.parquet", group="patient")
    assert table.num_rows == 12
    assert (report.content, report.grouped) == (Content.IMAGE, True)


def test_without_the_extra_one_sentence_names_it(tmp_path, monkeypatch):
    folder = of_two_classes(tmp_path / "d", np.zeros((4, 4), np.uint8), bits=8)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    for settings in ({}, {"group": "PatientID"}):
        with pytest.raises(DataError, match=r"dpal\[dicom\]"):
            imported(folder, tmp_path / "p.parquet", **settings)
