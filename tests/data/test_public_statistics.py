"""Statistics of public records, and what a model does with them."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load, save

from dpal.canonical import digest, plain
from dpal.data.public_statistics import public_statistics
from dpal.data.readers import to_input
from dpal.data.sources import Role, open_source
from dpal.errors import DataError, ParameterError
from dpal.models.build_model import build_model
from dpal.models.normalisation import Normalisation
from dpal.models.spec import ModelSpec
from dpal.randomness import secure
from dpal.training.evaluation import probabilities
from dpal.training.mc_dropout import draw_masks, mc_probabilities
from tests.conftest import having

ROWS = 2300  # three batches, the last one shorter


def write(path, column, values):
    table = {"id": [f"v-{i}" for i in range(len(values))], column: values, "label": [0, 1] * 1150}
    pq.write_table(pa.table(table), path)
    return open_source(path, Role.VALIDATION, label_column="label")


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("channels", [1, 3])
def test_statistics_of_images_are_numpys(tmp_path, channels):
    generator = np.random.default_rng(0)
    # Channels far from each other, and batches that differ in their means.
    centre = np.linspace(40, 200, ROWS)[:, None, None, None] * (np.arange(channels) + 1) / 3
    pixels = np.clip(generator.normal(centre, 20, (ROWS, 4, 5, channels)), 0, 255).astype(np.uint8)
    source = write(tmp_path / "v.parquet", "image", [png(one.squeeze()) for one in pixels])
    mean, std = public_statistics(source)
    scaled = pixels / 127.5 - 1
    assert mean == pytest.approx(scaled.mean(axis=(0, 1, 2)), abs=1e-6)
    assert std == pytest.approx(scaled.std(axis=(0, 1, 2)), rel=1e-6)
    usual = Normalisation.of_pixels(pixels.mean((0, 1, 2)) / 255, pixels.std((0, 1, 2)) / 255)
    assert usual.mean == pytest.approx(mean, abs=1e-6)
    assert usual.std == pytest.approx(std, rel=1e-6)


def test_statistics_of_features_are_numpys_and_far_means_cost_no_digits(tmp_path):
    values = np.random.default_rng(1).normal([1000.0, 0.0, -3.0], [0.5, 2.0, 0.1], (ROWS, 3))
    values = np.column_stack([values, np.full(ROWS, 7.3)]).astype(np.float32)
    column = pa.array(values.tolist(), pa.list_(pa.float32()))
    mean, std = public_statistics(write(tmp_path / "v.parquet", "features", column))
    exact = values.astype(np.float64)
    assert mean == pytest.approx(exact.mean(axis=0), rel=1e-9)
    assert std[:3] == pytest.approx(exact.std(axis=0)[:3], rel=1e-9)
    assert std[3] == 1.0  # constant: centred and left alone


def test_statistics_of_a_pool_are_refused(tmp_path):
    features = pa.array([[1.0, 2.0]] * ROWS, pa.list_(pa.float32()))
    source = write(tmp_path / "v.parquet", "features", features)
    with pytest.raises(DataError, match="statistics are private"):
        public_statistics(replace(source, role=Role.POOL))


def test_no_public_rows_have_no_statistics(tmp_path):
    table = {"id": ["a"], "features": pa.array([[1.0]], pa.list_(pa.float32())), "label": [0]}
    pq.write_table(pa.table({**table, "split": ["train"]}), tmp_path / "v.parquet")
    source = open_source(tmp_path / "v.parquet", Role.VALIDATION, label_column="label")
    with pytest.raises(DataError, match="has no rows"):
        public_statistics(source)


CIFAR = Normalisation.of_pixels((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
SPEC = ModelSpec(name="mlp", input_shape=(3, 4, 4), classes=3, hidden=(5,), normalisation=CIFAR)


def test_a_model_normalises_whoever_calls_it(bits):
    """Against the formula as it is printed for pixels from 0 to 1."""
    pixels = torch.randint(256, (6, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    pixels = pixels.to(torch.uint8)
    model, bare = build_model(SPEC), build_model(replace(SPEC, normalisation=None))
    mean = torch.tensor([0.4914, 0.4822, 0.4465])[:, None, None]
    std = torch.tensor([0.247, 0.2435, 0.2616])[:, None, None]
    wanted = bare((pixels.float() / 255 - mean) / std)
    assert torch.allclose(model(to_input(pixels)), wanted, atol=1e-5)
    found = probabilities(model, pixels, physical_batch=4)
    assert found == pytest.approx(torch.softmax(wanted, 1).detach().numpy(), abs=1e-5)
    assert not torch.allclose(bare(to_input(pixels)), wanted, atol=1e-2)  # it matters
    masks = draw_masks(model, passes=2, rng=bits)
    layers = [layer for layer in bare.modules() if isinstance(layer, torch.nn.Linear)]
    same = dict(zip(layers, masks.values(), strict=True))
    normalised = ((pixels.float() / 255 - mean) / std).float()
    dropped = mc_probabilities(bare, normalised, same, physical_batch=4)
    assert mc_probabilities(model, pixels, masks, physical_batch=4) == pytest.approx(
        dropped, abs=1e-5
    )


def test_weights_have_the_names_that_they_have_without():
    model, bare = build_model(SPEC), build_model(replace(SPEC, normalisation=None))
    bare.load_state_dict(load(save(model.state_dict())))
    for name, value in model.state_dict().items():
        assert torch.equal(bare.state_dict()[name], value)


def test_it_is_part_of_the_plan_and_survives_a_file():
    other = replace(SPEC, normalisation=replace(CIFAR, std=(1.0, 1.0, 1.0)))
    assert len({digest(one) for one in (SPEC, other, replace(SPEC, normalisation=None))}) == 3
    stored = json.loads(json.dumps(plain(SPEC)))["normalisation"]
    assert Normalisation(**{key: tuple(value) for key, value in stored.items()}) == CIFAR


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"mean": (0.0,), "std": (1.0, 1.0)}, "has 1 means and 2 standard deviations"),
        ({"mean": (), "std": ()}, "has 0 means"),
    ],
)
def test_means_and_deviations_belong_together(values, sentence):
    with pytest.raises(ParameterError, match=sentence):
        Normalisation(**values)


@pytest.mark.parametrize(("mean", "std", "wrong"), [(0.0, 0.0, "std"), (math.nan, 1.0, "mean")])
def test_numbers_that_are_none_are_refused(mean, std, wrong):
    with pytest.raises(ParameterError, check=having(parameter=f"normalisation.{wrong}")):
        Normalisation(mean=(mean,), std=(std,))


def test_records_that_it_does_not_fit_are_refused():
    with pytest.raises(ParameterError, match="have 1 channel"):
        replace(SPEC, input_shape=(1, 4, 4))
    with pytest.raises(ParameterError, match="are texts"):
        CIFAR.apply(torch.zeros(2, 3, 4, dtype=torch.int32))


def test_each_record_is_normalised_on_its_own():
    """No number of a batch enters: a record's result is the same in any company."""
    generator = torch.Generator().manual_seed(int(secure().words(1)[0]))
    records = torch.rand(4, 3, 4, 4, generator=generator)
    assert torch.equal(CIFAR.apply(records)[1:2], CIFAR.apply(records[1:2]))
