"""Labeled records are the same in memory and on disk, and so is training on them."""

from __future__ import annotations

import re
import traceback

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dpal.data.encoded_records import EncodedRecords
from dpal.data.inspect_rows import inspect
from dpal.data.labeled_records import load_labeled
from dpal.data.labeling_state import write_merged, write_start
from dpal.data.sources import Role, open_source
from dpal.errors import DataError
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import Phase, TrainingPhase
from dpal.planning.campaign_spec import OptimizerSpec
from dpal.planning.selection_steps import RandomDraw
from dpal.planning.training_recipe import Augmentation, Recipe
from dpal.training.optimizers import build_optimizer
from dpal.training.train_phase import train_dp_sgd
from tests.conftest import RepeatableBits, owner_reads, write_blobs
from tests.data.image_pools import ROWS, SIDE, expected, images, labeled_pool, on_disk, picture


@pytest.fixture(scope="module")
def image_pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return labeled_pool(folder, images(folder / "p.parquet", 2600), ROWS)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("in_memory", [True, False])
def test_images_come_in_the_order_of_the_pool(image_pool, tmp_path, in_memory, workers):
    if in_memory:
        found = load_labeled(*image_pool, workers=workers)
    else:
        found = on_disk(image_pool, tmp_path, workers=workers)
    with found as labeled:
        assert isinstance(labeled.inputs, torch.Tensor) is in_memory
        assert len(labeled.inputs) == len(ROWS)
        assert labeled.inputs.shape == (len(ROWS), 1, SIDE, SIDE)
        assert labeled.inputs.dtype == torch.uint8
        wanted = np.stack([expected(row) for row in ROWS])
        assert np.array_equal(labeled.inputs[:].numpy(), wanted)
        assert labeled.labels.tolist() == [row % 10 for row in ROWS]
        assert labeled.cohorts.tolist() == [3] * len(ROWS)
        some = np.array([8, 0, 3, 3, 5])
        batch = labeled.batch(some)
        assert batch.shape == (5, 1, SIDE, SIDE)
        assert batch.dtype == torch.uint8
        assert np.array_equal(batch[1:4].numpy(), wanted[some[1:4]])
        mask = torch.from_numpy(np.isin(np.arange(len(ROWS)), some))
        assert np.array_equal(labeled.inputs[mask].numpy(), wanted[mask.numpy()])
        assert np.array_equal(labeled.inputs[torch.tensor([2, 1])].numpy(), wanted[[2, 1]])
        assert labeled.batch(some[:0])[:].shape == (0, 1, SIDE, SIDE)


def test_what_fits_into_the_cache_is_decoded_once(image_pool, tmp_path):
    """The limit is on decoded bytes: 2,600 images of 64 pixels are 0.16 MiB."""
    path = image_pool[0].paths[0]
    many = labeled_pool(tmp_path, path, range(2600))
    assert isinstance(load_labeled(*many, cache_mib=1, scratch=tmp_path).inputs, torch.Tensor)
    with load_labeled(*many, cache_mib=0, scratch=tmp_path) as labeled:
        assert isinstance(labeled.inputs, EncodedRecords)
    assert isinstance(load_labeled(*many, cache_mib=0).inputs, torch.Tensor)  # nowhere to go


def test_batches_of_a_tensor_are_the_same(image_pool, tmp_path):
    drawn = [np.array([3, 1]), np.array([], dtype=int), np.array([8])]
    with on_disk(image_pool, tmp_path) as encoded:
        there = [(rows, batch[:]) for rows, batch in encoded.batches(drawn, part=2)]
    decoded = load_labeled(*image_pool)
    here = [(rows, batch[:]) for rows, batch in decoded.batches(drawn, part=2)]
    assert len(here) == len(there) == 3
    for (rows, one), (others, other) in zip(here, there, strict=True):
        assert np.array_equal(rows, others)
        assert torch.equal(one, other)


def test_features_are_read_from_disk_as_they_are(tmp_path):
    path = write_blobs(tmp_path / "p.parquet", 1500, seed=0)
    pool = labeled_pool(tmp_path, path, [3, 700, 1400])
    stored = pq.read_table(path).column("features").to_pylist()
    with on_disk(pool, tmp_path) as labeled:
        assert labeled.inputs.dtype == torch.float32
        assert labeled.inputs[:].tolist() == [stored[3], stored[700], stored[1400]]
        labeled.inputs[:].zero_()  # whoever gets a batch may write into it
        assert labeled.batch(np.array([2]))[:].tolist() == [stored[1400]]


@pytest.mark.parametrize("cache_mib", [0, 1])
def test_nobody_labeled_is_an_empty_set(tmp_path, cache_mib):
    path = images(tmp_path / "p.parquet", 20)
    source, state = labeled_pool(tmp_path, path, [])
    with load_labeled(source, state, cache_mib=cache_mib, scratch=tmp_path) as labeled:
        assert len(labeled.inputs) == len(labeled.labels) == 0
        assert labeled.batch(np.array([], dtype=int))[:].shape == (0, 1, SIDE, SIDE)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (b"no image", "row 1041 .*JPEG"),
        (None, "row 1041 has no image"),
        (picture(1, side=9), r"row 1041 .*\(1, 9, 9\), others"),
    ],
)
def test_no_message_says_which_record_is_labeled(tmp_path, other, sentence, in_memory):
    """The check of all records names the row; what reads the labeled ones does not."""
    path = images(tmp_path / "p.parquet", 1100, replaced={1041: other})
    pool = labeled_pool(tmp_path, path, [5, 1030, 1041, 1090])

    def everything():
        if in_memory:
            return load_labeled(*pool).inputs[:]
        with on_disk(pool, tmp_path) as labeled:
            assert len(labeled.batch(np.array([0, 1, 3]))[:]) == 3  # the others can be had
            return labeled.inputs[:]

    with owner_reads(DataError, match=sentence):
        inspect(pool[0])
    with pytest.raises(DataError, match=r"p\.parquet .*be read") as refused:
        everything()
    whole = "".join(traceback.format_exception(refused.value, chain=True))
    assert "which row" in whole
    assert not re.search(r"row \d|1041|1, 9, 9", whole)
    assert refused.value.__context__ is None


def test_a_pool_that_lost_rows_is_said(tmp_path):
    source, state = labeled_pool(tmp_path, images(tmp_path / "p.parquet", 100), [3, 98])
    images(tmp_path / "p.parquet", 50)
    with pytest.raises(DataError, match="fewer rows"):
        load_labeled(source, state)


def test_a_multi_label_set_has_a_row_of_labels_for_each_record(tmp_path):
    labels = pa.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], pa.list_(pa.int8()))
    table = {"id": ["r-0", "r-1", "r-2"], "image": [picture(i) for i in range(3)], "label": labels}
    pq.write_table(pa.table(table), tmp_path / "p.parquet")
    source = open_source(tmp_path / "p.parquet", Role.POOL, label_column="label")
    write_start(source, tmp_path / "s0")
    bought = {"r-0": (0, 1, 1), "r-2": (0, 0, 0)}
    write_merged(tmp_path / "s0", bought, 0, tmp_path / "s1")
    with on_disk((source, tmp_path / "s1"), tmp_path) as labeled:
        assert labeled.labels.tolist() == [[0, 1, 1], [0, 0, 0]]


def test_training_from_disk_is_training_from_memory(tmp_path):
    """With the same coins, views and noise; parts are smaller than batches.

    The last bit of a sum depends on where in memory its terms happen to lie, in both: of 60
    trainings 11 differed from the first by 3e-8, a step of the grid that sums are rounded to.
    """
    path = images(tmp_path / "p.parquet", 300)
    pool = labeled_pool(tmp_path, path, range(0, 300, 2))
    spec = ModelSpec(name="logistic", input_shape=(1, SIDE, SIDE), classes=10)
    wishes = OptimizerSpec(name="sgd", learning_rate=0.1, momentum=0.9, max_grad_norm=1.0)
    training = TrainingPhase(
        steps=4,
        noise_multiplier=0.5,
        sample_rate_old=0.0,
        sample_rate_new=0.4,
        expected_batch_size=60.0,
    )
    weights = []
    for cache_mib in (1, 0):
        with load_labeled(*pool, cache_mib=cache_mib, scratch=tmp_path) as labeled:
            model = build_model(spec)
            train_dp_sgd(
                model,
                build_optimizer(wishes, model.parameters()),
                labeled,
                Phase(index=3, cohort_size=150, selection=RandomDraw(), training=training),
                wishes,
                recipe=Recipe(augmentation=Augmentation(multiplicity=2, flip=True, shift=1)),
                physical_batch=32,
                rng=RepeatableBits(5),
            )
            weights.append(torch.cat([one.detach().flatten() for one in model.parameters()]))
    assert torch.allclose(weights[0], weights[1], rtol=0, atol=1e-6)
    fresh = torch.cat([one.flatten() for one in build_model(spec).parameters()])
    assert not torch.allclose(weights[0], fresh, rtol=0, atol=1e-2)
