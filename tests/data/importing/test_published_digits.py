"""MNIST, QMNIST and SVHN in the forms in which they are published."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.data.labeling_state import load_all
from dpal.data.sources import Role, open_source
from dpal.errors import DataError

RNG = np.random.default_rng(3)
PIXELS = {
    part: RNG.integers(0, 256, (rows, 6, 5), dtype=np.uint8)
    for part, rows in (("train", 300), ("test", 40))
}


def idx(values: np.ndarray, mark: int) -> bytes:
    sides = b"".join(side.to_bytes(4, "big") for side in values.shape)
    return bytes([0, 0, mark, values.ndim]) + sides + values.tobytes()


def mnist(folder: Path, *, dot: bool = False) -> None:
    for part, name in (("train", "train"), ("test", "t10k")):
        labels = (np.arange(len(PIXELS[part])) % 10).astype(np.uint8)
        mark = "." if dot else "-"
        (folder / f"{name}-images{mark}idx3-ubyte").write_bytes(idx(PIXELS[part], 8))
        (folder / f"{name}-labels{mark}idx1-ubyte").write_bytes(idx(labels, 8))


def qmnist(folder: Path) -> None:
    for part, pixels in PIXELS.items():
        columns = RNG.integers(0, 1000, (len(pixels), 8))
        columns[:, 0] = np.arange(len(pixels)) % 10
        for what, content in (
            ("images-idx3-ubyte.gz", idx(pixels, 8)),
            ("labels-idx2-int.gz", idx(columns.astype(">i4"), 0x0C)),
        ):
            (folder / f"qmnist-{part}-{what}").write_bytes(gzip.compress(content))
    (folder / "xnist-images-idx3-ubyte.xz").write_bytes(b"not asked for")


def svhn(folder: Path) -> None:
    for part, pixels in PIXELS.items():
        colours = np.stack([pixels, pixels // 2, 255 - pixels], axis=-1)
        classes = np.arange(len(pixels)) % 10
        held = {"X": colours.transpose(1, 2, 3, 0), "y": np.where(classes, classes, 10)[:, None]}
        savemat(folder / f"{part}_32x32.mat", held, do_compression=True)


def imported(place: Path, target: Path, **settings: object) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and labels of the pool, as runs read them."""
    report = import_source(place, target, ImportSettings(**settings))  # type: ignore[arg-type]
    assert report.rows == {"train": 300, "test": 40}
    pixels, labels = load_all(open_source(target, Role.POOL, label_column="label"))
    return pixels.numpy(), labels.numpy()


@pytest.mark.parametrize("make", [mnist, lambda folder: mnist(folder, dot=True), qmnist, svhn])
def test_pictures_and_classes_are_those_of_the_files(tmp_path, make):
    (tmp_path / "digits").mkdir()
    make(tmp_path / "digits")
    pixels, labels = imported(tmp_path / "digits", tmp_path / "pool.parquet")
    assert labels.tolist() == [k % 10 for k in range(300)]
    expected = PIXELS["train"]
    if make is svhn:
        assert np.array_equal(pixels[:, 2], 255 - expected)
        pixels = pixels[:, 0]
    assert np.array_equal(pixels.reshape(expected.shape), expected)


@pytest.mark.parametrize("make", [mnist, svhn])
def test_one_file_is_a_source_that_has_no_parts(tmp_path, make):
    make(tmp_path)
    one = tmp_path / ("train_32x32.mat" if make is svhn else "train-images-idx3-ubyte")
    with pytest.raises(DataError):
        import_source(one, tmp_path / "a.parquet", ImportSettings())
    report = import_source(one, tmp_path / "b.parquet", ImportSettings(held_out=0.2))
    assert sum(report.rows.values()) == 300


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 3)


def fewer_labels(path: Path) -> None:
    path.write_bytes(idx(np.zeros(299, np.uint8), 8))


def huge(path: Path) -> None:
    path.write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12)


def without(path: Path) -> None:
    path.unlink()


def without_labels(path: Path) -> None:
    savemat(path, {"X": PIXELS["train"]})


def of_class_zero(path: Path) -> None:
    savemat(path, {"X": np.zeros((4, 4, 3, 2), np.uint8), "y": np.array([0, 1])})


@pytest.mark.parametrize(
    ("file", "harm"),
    [
        ("train-images-idx3-ubyte", cut),
        ("train-images-idx3-ubyte", huge),
        ("train-labels-idx1-ubyte", cut),
        ("train-labels-idx1-ubyte", longer),
        ("train-labels-idx1-ubyte", fewer_labels),
        ("train-labels-idx1-ubyte", without),
        ("train_32x32.mat", cut),
        ("train_32x32.mat", without_labels),
        ("train_32x32.mat", of_class_zero),
    ],
)
def test_what_is_damaged_is_refused_and_nothing_is_written(
    tmp_path, file: str, harm: Callable[[Path], None]
):
    (svhn if file.endswith(".mat") else mnist)(tmp_path)
    harm(tmp_path / file)
    with pytest.raises(DataError):
        import_source(tmp_path, tmp_path / "pool.parquet", ImportSettings())
    assert not (tmp_path / "pool.parquet").exists()
