"""Pictures of 16 bits keep their levels of grey, from import through training to predictions."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import dpal
from dpal.config.campaign import parse_config
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.write_pool import import_source
from dpal.data.inspect_rows import inspect
from dpal.data.labeled_records import load_labeled
from dpal.data.labeling_state import load_all, write_merged, write_start
from dpal.data.likeness.pictures import describe
from dpal.data.public_statistics import public_statistics
from dpal.data.readers import blank_record, raw_batches, records_of, to_input, to_unit
from dpal.data.sources import Role, Source, open_source
from dpal.errors import DataError
from dpal.features.extractors import build_extractor
from dpal.features.spec import ExtractorKind, ExtractorSpec
from dpal.planning.training_recipe import Augmentation
from dpal.runs.predict import open_model, predict
from dpal.training.augmentation import augment, view_generator
from dpal.training.rotation_pretraining import rotate_four_ways
from tests.conftest import small_values

SIDE = 12


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def pool(path: Path, pictures: list[bytes], labels: list[int] | None = None) -> Path:
    given = labels or [row % 2 for row in range(len(pictures))]
    names = [f"{path.stem}-{row:04d}" for row in range(len(pictures))]
    pq.write_table(pa.table({"id": names, "image": pictures, "label": given}), path)
    return path


def deep_pictures(count: int, *, seed: int = 0) -> list[np.ndarray]:
    """Random levels below, and above, the middle of the range; the latter are of class 1."""
    rng = np.random.default_rng(seed)
    return [
        (rng.integers(0, 30_000, (SIDE, SIDE)) + 30_000 * (row % 2)).astype(np.uint16)
        for row in range(count)
    ]


def source_of(path: Path, role: Role = Role.VALIDATION) -> Source:
    return open_source(path, role, label_column="label")


def test_records_that_differ_below_eight_bits_are_different_inputs(tmp_path):
    """Both are 77 in 8 bits; a step of 16 bits is 1/257 of one of 8."""
    one, other = (np.full((SIDE, SIDE), 77 * 257 + step, np.uint16) for step in (0, 1))
    source = source_of(pool(tmp_path / "p.parquet", [png(one), png(other)]))
    inputs, _ = load_all(source)
    assert inputs.dtype == torch.uint16
    seen = to_input(inputs)
    assert seen[0, 0, 0, 0].item() == pytest.approx(77 / 127.5 - 1, abs=1e-6)
    apart = (seen[1] - seen[0]).mean().item()
    assert apart == pytest.approx(2 / 65535, rel=0.01)
    assert to_unit(inputs)[1, 0, 0, 0].item() == pytest.approx((77 * 257 + 1) / 65535)


def test_black_and_white_are_the_ends_of_the_range(tmp_path):
    ends = [np.full((SIDE, SIDE), level, np.uint16) for level in (0, 0xFFFF)]
    source = source_of(pool(tmp_path / "p.parquet", list(map(png, ends))))
    seen = to_input(load_all(source)[0])
    assert (seen[0].unique().tolist(), seen[1].unique().tolist()) == ([-1.0], [1.0])
    blank = blank_record(source, (1, SIDE, SIDE))
    assert torch.equal(to_input(blank), seen[:1])


def test_sixteen_bits_of_eight_are_what_eight_bits_are(tmp_path):
    """Levels times 257, and all that is made of them: inputs, statistics, features."""
    shallow = [(each >> 8).astype(np.uint8) for each in deep_pictures(12)]
    deep = [each.astype(np.uint16) * 257 for each in shallow]
    kinds = [
        source_of(pool(tmp_path / f"{name}.parquet", list(map(png, pictures))))
        for name, pictures in (("shallow", shallow), ("deep", deep))
    ]
    eight, sixteen = (load_all(source)[0] for source in kinds)
    assert (eight.dtype, sixteen.dtype) == (torch.uint8, torch.uint16)
    assert torch.allclose(to_input(eight), to_input(sixteen), atol=1e-6)
    assert torch.equal(to_input(eight), eight.float() / 127.5 - 1), "as they ever were"
    for one, other in zip(*map(public_statistics, kinds), strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    extractor = build_extractor(ExtractorSpec(kind=ExtractorKind.SCATTERING), kinds[0].content)
    assert extractor is not None
    assert torch.allclose(extractor(eight), extractor(sixteen), atol=5e-3)


def test_all_ways_to_read_a_pool_agree(tmp_path):
    """Streams, labeled records in memory and on disk, in whatever order they are asked for."""
    pictures = deep_pictures(40)
    source = source_of(pool(tmp_path / "p.parquet", list(map(png, pictures))), Role.POOL)
    write_start(source, tmp_path / "s0")
    write_merged(tmp_path / "s0", {f"p-{row:04d}": row % 2 for row in range(40)}, 0, tmp_path / "s")
    [batch] = raw_batches(source, ["image"])
    streamed = records_of(source, batch.table.column(0), rows=batch.numbers)
    assert np.array_equal(streamed.numpy()[:, 0], np.stack(pictures))
    kept = load_labeled(source, tmp_path / "s")
    with load_labeled(source, tmp_path / "s", cache_mib=0, scratch=tmp_path / "scratch") as stored:
        for labeled in (kept, stored):
            assert labeled.inputs.dtype == torch.uint16
            rows = np.array([7, 3, 39], np.intp)
            assert torch.equal(labeled.batch(rows)[0:3], streamed[[7, 3, 39]])


def test_views_and_turns_of_sixteen_bits_keep_their_levels(bits):
    images = torch.from_numpy(np.stack(deep_pictures(5))[:, None])
    turned, _ = rotate_four_ways(images)
    expected, _ = rotate_four_ways(images.int())
    assert turned.dtype == torch.uint16 and torch.equal(turned.int(), expected)
    views = augment(
        images, Augmentation(multiplicity=3, flip=True, shift=2), generator=view_generator(bits)
    )
    assert views.dtype == torch.uint16
    assert set(views.int().flatten().tolist()) <= set(images.int().flatten().tolist())


@pytest.mark.parametrize("first_is_deep", [False, True])
def test_pictures_of_two_depths_are_refused(tmp_path, first_is_deep):
    """What the first one says of all others would tell of it."""
    deep = deep_pictures(2)[0]
    both = [png(deep), png((deep >> 8).astype(np.uint8))]
    source = source_of(pool(tmp_path / "p.parquet", both if first_is_deep else both[::-1]))
    with pytest.raises(DataError) as refused:
        inspect(source)
    said = refused.value.for_owner()
    assert "row 1" in said and "16" in said and "depth" in said


def test_alike_are_pictures_by_eight_bits_as_before():
    deep = deep_pictures(1)[0]
    column = pa.array([png(deep), png((deep >> 8).astype(np.uint8))], pa.binary())
    known = describe(column, rows=None, salt=b"")
    assert known.contents[0] == known.contents[1]


def test_an_import_refuses_two_depths_and_one_option_mends_it(tmp_path):
    for row, deep in enumerate(deep_pictures(20)):
        path = tmp_path / "p" / "ab"[row % 2] / f"{row:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        shown = deep if row != 13 else (deep >> 8).astype(np.uint8)
        Image.fromarray(shown).save(path)
    target = tmp_path / "pool.parquet"
    with pytest.raises(DataError, match="--rgb"):
        import_source(tmp_path / "p", target, ImportSettings(held_out=0.4))
    assert not target.exists()


def test_levels_go_all_the_way_from_arrays_to_predictions(tmp_path, monkeypatch):
    """Classes that differ by 128 of 65,536 levels: the same picture in 8 bits."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 900)
    base = np.full((900, SIDE, SIDE), 200 * 256, np.int64)
    pixels = base + 16 + 128 * labels[:, None, None] + rng.integers(0, 64, base.shape)
    assert len(np.unique(pixels >> 8)) == 1
    deep = pixels.astype(np.uint16)
    np.savez(tmp_path / "a.npz", x_train=deep[:600], y_train=labels[:600],
             x_test=deep[600:], y_test=labels[600:])  # fmt: skip
    import_source(tmp_path / "a.npz", tmp_path / "pool.parquet", ImportSettings())
    values = small_values(
        acquisition="random",
        schedule={"initial": 400, "queries": [], "batch_size": 200, "epochs_per_phase": 20},
        data={"pool": "pool.parquet", "validation": "pool.parquet"},
        data__normalisation={"kind": "validation"},
        privacy__epsilon=30.0,
    )
    folder = dpal.run(parse_config(values))
    [metrics] = folder.finished_phases()
    assert metrics["validation_accuracy"] > 0.9
    model = open_model(folder.root)
    done = predict(model, tmp_path / "pool.parquet", tmp_path / "out.parquet", ImportSettings())
    told = pq.read_table(tmp_path / "out.parquet")
    kept = pq.read_table(tmp_path / "pool.parquet", columns=["id", "label"])
    wanted = dict(zip(kept["id"].to_pylist(), kept["label"].to_pylist(), strict=True))
    right = [wanted[name] == said for name, said in
             zip(told["id"].to_pylist(), told["label"].to_pylist(), strict=True)]  # fmt: skip
    assert done.rows == len(right) and np.mean(right) > 0.9
