"""Features on disk: the same numbers, each record embedded once, whatever befalls the file."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dpal.data.sources import Role, Source, open_source
from dpal.errors import StorageError
from dpal.features.stored_features import StoredFeatures
from tests.features.test_extractors import pixels, write_images


@dataclass(frozen=True)
class Counted:
    """An extractor that counts the records that it worked on."""

    counts: list[int] = field(default_factory=list)

    def __call__(self, records: Tensor) -> Tensor:
        self.counts.append(len(records))
        return (records.flatten(1)[:, :5].float() / 7).to(torch.float16)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    path = write_images(tmp_path / "pool.parquet", pixels(70, 1, 8, 8))
    return open_source(path, Role.POOL, label_column="label")


@pytest.fixture
def stored(tmp_path: Path, source: Source) -> StoredFeatures:
    made = StoredFeatures(Counted(), "d" * 64, tmp_path / "kept" / "pool.arrow")
    made.write(source, lambda count: None)
    return made


def worked_on(stored: StoredFeatures) -> int:
    assert isinstance(stored.extractor, Counted)
    return sum(stored.extractor.counts)


def test_a_record_is_embedded_once_and_its_features_stay(stored, source):
    images = pixels(70, 1, 8, 8)
    assert (worked_on(stored), stored.is_complete(source)) == (70, True)
    assert torch.equal(stored(images[20:60]), Counted()(images[20:60]))
    assert torch.equal(stored(images.flip(0)), Counted()(images.flip(0)))
    assert worked_on(stored) == 70
    others = torch.cat([pixels(3, 1, 8, 8, seed=5), images[:2]])
    assert torch.equal(stored(others), Counted()(others))
    assert worked_on(stored) == 73
    assert stored(images[:0]).shape == (0, 5)


def test_it_is_its_owners_alone(stored):
    assert stat.S_IMODE(stored.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(stored.file.parent.stat().st_mode) == 0o700


def test_features_of_another_model_or_pool_are_not_taken(stored, source, tmp_path):
    other = StoredFeatures(Counted(), "e" * 64, stored.file)
    other(pixels(70, 1, 8, 8))
    assert (worked_on(other), other.is_complete(source)) == (70, False)
    write_images(source.paths[0], pixels(70, 1, 8, 8, seed=1))
    assert not stored.is_complete(source)


@pytest.mark.parametrize("damage", ["cut", "emptied", "turned", "gone"])
def test_a_damaged_file_costs_time_and_changes_no_number(stored, damage):
    images, content = pixels(70, 1, 8, 8), stored.file.read_bytes()
    expected = Counted()(images)
    if damage == "gone":
        stored.file.unlink()
    elif damage == "turned":  # a bit of one record's features
        value = expected[30].numpy().tobytes()
        at = content.index(value)
        stored.file.write_bytes(content[:at] + bytes([value[0] ^ 1]) + content[at + 1 :])
    else:
        stored.file.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    assert torch.equal(stored(images), expected)
    assert worked_on(stored) == 70 + (1 if damage == "turned" else 70)


def test_a_write_that_does_not_end_leaves_nothing(stored, source):
    before = stored.file.read_bytes()

    def killed(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored.write(source, killed)
    assert stored.file.read_bytes() == before
    stored.file.unlink()
    with pytest.raises(KeyboardInterrupt):
        stored.write(source, killed)
    assert list(stored.file.parent.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(source, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StorageError):
        StoredFeatures(Counted(), "d" * 64, tmp_path / "file" / "pool.arrow").write(
            source, lambda count: None
        )
