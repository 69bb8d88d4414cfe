from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from dpal.canonical import digest, place_digest
from dpal.config.campaign import parse_config
from dpal.data.inspect_rows import inspect
from dpal.data.labeling_state import load_all, load_labeled, write_merged, write_start
from dpal.data.readers import decoded_of, raw_batches, records_of, to_input
from dpal.data.sources import Content, Role, Source, open_source
from dpal.errors import ConfigError, DataError, ParameterError
from dpal.features.extractors import (
    BackboneExtractor,
    ScatteringExtractor,
    build_extractor,
    scattered_width,
)
from dpal.features.scattering import Scattering
from dpal.features.spec import ExtractorKind, ExtractorSpec
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.runs.open_sources import open_sources
from tests.conftest import small_values

SCATTERING = ExtractorSpec(kind=ExtractorKind.SCATTERING)
CNN = ModelSpec(name="tutorial_cnn", input_shape=(1, 16, 16), classes=5, seed=3)


def pixels(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, shape, generator=generator).to(torch.uint8)


def png(image: Tensor) -> bytes:
    stored = io.BytesIO()
    Image.fromarray(image[0].numpy()).save(stored, "PNG")
    return stored.getvalue()


def write_images(path: Path, images: Tensor) -> Path:
    columns = {
        "id": pa.array([f"{path.stem}-{row}" for row in range(len(images))]),
        "image": pa.array([png(one) for one in images]),
        "features": pa.array([[0.0, float(row)] for row in range(len(images))]),
        "label": pa.array([row % 2 for row in range(len(images))]),
    }
    pq.write_table(pa.table(columns), path)
    return path


def opened(path: Path, spec: ExtractorSpec = SCATTERING, role: Role = Role.POOL) -> Source:
    source = open_source(path, role, label_column="label")
    return replace(source, extractor=build_extractor(spec, source.content))


def scattered(images: Tensor) -> Tensor:
    extractor = build_extractor(SCATTERING, Content.IMAGE)
    assert extractor is not None
    return extractor(images)


@pytest.fixture
def backbone(tmp_path: Path) -> ExtractorSpec:
    weights = tmp_path / "public.safetensors"
    save_file(build_model(CNN).state_dict(), weights)
    return ExtractorSpec(
        kind=ExtractorKind.BACKBONE,
        model="tutorial_cnn",
        weights=str(weights),
        weights_digest=place_digest(weights),
    )


def test_scattering_is_standardised_record_by_record():
    """Nine coefficients of a record together, whatever the contrast of the image."""
    images = pixels(3, 3, 16, 12)
    dim = images.clone()
    dim[0] = dim[0] // 8 + 100
    features = scattered(dim)
    assert (features.shape, features.dtype) == ((3, 243, 4, 3), torch.float16)
    groups = features.float().reshape(3, 27, 9 * 12)
    # Rounding to halves: 5e-4 of values of up to about 5.
    assert groups.mean(dim=2) == pytest.approx(torch.zeros(3, 27), abs=1e-3)
    assert groups.std(dim=2, correction=0) == pytest.approx(torch.ones(3, 27), abs=5e-3)
    red, green, blue = (dim.float() / 255).unbind(1)
    opponents = [(red + green + blue) / 3, (red - green) / 2, (red + green) / 4 - blue / 2]
    plain = Scattering()(torch.stack(opponents, dim=1)).flatten(1, 2).reshape(3, 27, 9 * 12)
    by_hand = (plain - plain.mean(2, keepdim=True)) / plain.std(2, correction=0, keepdim=True)
    assert groups == pytest.approx(by_hand, abs=5e-3, rel=5e-3)


@pytest.mark.parametrize("kind", ["scattering", "backbone"])
def test_features_are_those_of_one_record(kind, backbone):
    """Two sets that differ in all but one record give it the same features, bit by bit."""
    spec = SCATTERING if kind == "scattering" else backbone
    extractor = build_extractor(spec, Content.IMAGE)
    assert extractor is not None
    one, other = pixels(90, 1, 16, 16), pixels(90, 1, 16, 16, seed=1)
    other[40] = one[40]
    assert torch.equal(extractor(one)[40], extractor(other)[40])
    assert not torch.equal(extractor(one)[41], extractor(other)[41])


@pytest.mark.parametrize("kind", ["scattering", "backbone"])
@pytest.mark.parametrize("grey", [0, 255])
def test_a_blank_record_has_finite_features(kind, grey, backbone):
    extractor = build_extractor(SCATTERING if kind == "scattering" else backbone, Content.IMAGE)
    assert extractor is not None
    assert extractor(torch.full((1, 1, 16, 16), grey, dtype=torch.uint8)).isfinite().all()
    assert len(extractor(torch.empty(0, 1, 16, 16, dtype=torch.uint8))) == 0


@pytest.mark.parametrize(
    ("shape", "square"),
    [((1, 64, 64), 2), ((3, 50, 70), 3), ((1, 32, 20), 1), ((1, 200, 20), 2), ((1, 65, 64), 3)],
)
def test_larger_images_are_made_coarser_first(shape, square):
    images = pixels(2, *shape)
    extractor = build_extractor(ExtractorSpec(kind=ExtractorKind.COARSE_SCATTERING), Content.IMAGE)
    assert extractor is not None
    found = extractor(images)
    channels, height, width = shape
    assert found[0].numel() == scattered_width(channels, (height, width), coarse=True)
    # Whole squares alone, averaged by hand.
    inside = images[:, :, : height // square * square, : width // square * square].float()
    tall, wide = height // square, width // square
    means = inside.reshape(2, channels, tall, square, wide, square).mean(dim=(3, 5)) / 255
    if height % square == width % square == 0:
        plain = ScatteringExtractor()((means * 255).round().to(torch.uint8))
        assert found.float() == pytest.approx(plain.float(), abs=0.3)
        assert (found - plain).float().abs().mean() < 0.02  # grey was rounded
    if square == 1:
        assert torch.equal(found, ScatteringExtractor()(images))
        assert found[0].numel() == scattered_width(channels, (height, width), coarse=False)


def test_a_backbone_is_the_model_up_to_its_last_layer(backbone):
    images = pixels(5, 1, 16, 16)
    model: Any = build_model(CNN)  # its layers by name
    features = BackboneExtractor(backbone)(images).float()
    low = model.pool(model.activation(model.first(to_input(images))))
    high = model.pool(model.activation(model.second(low)))
    dense = model.activation(model.dense(high.flatten(1))).detach()
    by_hand = (dense - dense.mean(1, keepdim=True)) / dense.std(1, correction=0, keepdim=True)
    assert features == pytest.approx(by_hand, abs=5e-3)


def test_other_weights_than_planned_are_refused(backbone):
    changed = replace(backbone, weights_digest="0" * 64)
    with pytest.raises(DataError, match="planned with"):
        BackboneExtractor(changed)(pixels(2, 1, 16, 16))
    missing = replace(backbone, weights="nowhere.safetensors")
    with pytest.raises(DataError, match=r"nowhere\.safetensors is"):
        BackboneExtractor(missing)(pixels(2, 1, 16, 16))


def test_where_weights_lie_is_no_part_of_a_plan_and_what_they_are_is(backbone):
    assert digest(replace(backbone, weights="elsewhere")) == digest(backbone)
    assert digest(replace(backbone, weights_digest="0" * 64)) != digest(backbone)


def test_a_source_gives_features_wherever_records_are_read(tmp_path):
    """Inspected, labeled and loaded whole: the same shape and the same numbers."""
    images = pixels(70, 1, 20, 16)
    source = opened(write_images(tmp_path / "pool.parquet", images))
    wanted = scattered(images)
    assert inspect(source).input_shape == wanted.shape[1:] == (81, 5, 4)
    column = next(iter(raw_batches(source, ["image"]))).table.column(0)
    assert torch.equal(decoded_of(source, column, rows=None), images)
    assert torch.equal(records_of(source, column, rows=None), wanted)
    assert torch.equal(load_all(source)[0], wanted)

    start, state = tmp_path / "start.parquet", tmp_path / "state.parquet"
    write_start(source, start)
    bought = {f"pool-{row}": row % 2 for row in range(0, 70, 3)}
    write_merged(start, bought, 0, state)
    in_memory = load_labeled(source, state)
    assert in_memory.inputs[:].float() == pytest.approx(wanted[::3].float(), abs=2e-3)
    with load_labeled(source, state, cache_mib=0, scratch=tmp_path / "scratch") as on_disk:
        rows = np.array([3, 0, 22])
        assert torch.equal(on_disk.batch(rows)[0:3], in_memory.inputs[torch.from_numpy(rows)])


def test_halves_become_floats_for_models():
    features = scattered(pixels(2, 1, 16, 16))
    assert to_input(features).dtype == torch.float32
    assert torch.equal(to_input(features), features.float())


def test_features_of_features_are_refused():
    with pytest.raises(DataError, match="scattering takes images, and the records are features"):
        build_extractor(SCATTERING, Content.FEATURES)


def test_images_that_are_too_small_are_refused(tmp_path):
    source = opened(write_images(tmp_path / "pool.parquet", pixels(3, 1, 8, 8)))
    with pytest.raises(DataError, match="sides above 8"):
        inspect(source)


def test_what_a_record_is_can_be_chosen(tmp_path):
    """A file with images and an embeddings column: configuration says which."""
    path = write_images(tmp_path / "pool.parquet", pixels(6, 1, 16, 16))
    files = {"data__pool": str(path), "data__validation": str(path)}
    shapes = {
        choice: inspect(open_sources(parse_config(small_values(**files, **changes)))[0]).input_shape
        for choice, changes in {
            "auto": {},
            "features": {"data__content": "features"},
            "scattering": {"data__content": "image", "data__extractor": "scattering"},
        }.items()
    }
    assert shapes == {"auto": (1, 16, 16), "features": (2,), "scattering": (81, 4, 4)}
    with pytest.raises(DataError, match=r"no column 'text_a', which data\.content text asks for"):
        open_sources(parse_config(small_values(**files, data__content="text")))


def test_a_backbone_by_configuration(tmp_path, backbone):
    path = write_images(tmp_path / "pool.parquet", pixels(6, 1, 16, 16))
    values = small_values(
        data__pool=str(path),
        data__validation=str(path),
        data__extractor="backbone",
        data__backbone={"model": "tutorial_cnn", "weights": backbone.weights},
    )
    config = parse_config(values)
    pool, _ = open_sources(config)
    assert inspect(pool).input_shape == (32,)
    spec = config.to_spec(pool_size=600, input_shape=(32,), classes=2)
    assert spec.extractor == backbone
    del values["data"]["backbone"]
    with pytest.raises(ConfigError, match="go together"):
        parse_config(values)
    with pytest.raises(ParameterError, match=r"needs data\.backbone"):
        ExtractorSpec(kind=ExtractorKind.BACKBONE)
    with pytest.raises(ParameterError, match=r"data\.extractor backbone"):
        ExtractorSpec(model="resnet50")
