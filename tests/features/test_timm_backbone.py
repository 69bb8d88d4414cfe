"""Models of timm: as the library computes them, from local files alone."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import layer_norm

from dpal.canonical import digest
from dpal.data.sources import Content
from dpal.errors import DataError, ParameterError
from dpal.features.extractors import brought_to, build_extractor, feature_width
from dpal.features.library_backbones import TIMM
from dpal.features.spec import ExtractorSpec
from tests.features.library_models import spec_of

try:
    timm = TIMM.library("timm")
except DataError as error:
    pytest.skip(f"models of timm cannot be built here: {error}", allow_module_level=True)

VARIANTS = ("test_vit.r160_in1k", "test_convnext.r160_in1k", "test_resnet.r160_in1k")


def write_weights(path: Path, variant: str) -> Path:
    """A file of random weights with its classifier, as people save models."""
    torch.manual_seed(0)
    model = timm.create_model(variant)
    for value in model.parameters():
        value.data.add_(0.05 * torch.randn_like(value))
    save_file(model.state_dict(), path)
    return path


@pytest.fixture(params=VARIANTS)
def made(request, tmp_path) -> ExtractorSpec:
    path = write_weights(tmp_path / "public.safetensors", request.param)
    return spec_of("timm", path, variant=request.param)


def pixels(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, shape, generator=generator).to(torch.uint8)


def features_of(spec: ExtractorSpec, records: Tensor) -> Tensor:
    extractor = build_extractor(spec, Content.IMAGE)
    assert extractor is not None
    return extractor(records)


def test_features_are_those_of_the_library(made):
    images, form = pixels(4, 3, 90, 120), made.pictures
    assert form is not None
    about = timm.data.resolve_data_config({}, model=timm.create_model(made.variant))
    assert (form.side, form.mean, form.std, form.interpolation) == (
        about["input_size"][1], about["mean"], about["std"], about["interpolation"],
    )  # fmt: skip
    model = timm.create_model(made.variant, num_classes=0).eval()
    model.load_state_dict(load_file(made.weights), strict=False)
    with torch.no_grad():
        expected = model(brought_to(form, images))
    found = features_of(made, images)
    assert feature_width(made, (3, 90, 120)) == found.shape[1] == model.num_features
    assert torch.allclose(found.float(), layer_norm(expected, expected.shape[1:]), atol=5e-3)
    assert (found[0] - found[1]).float().abs().max() > 0.005  # not one answer for all


def test_a_records_features_are_its_own(made):
    one, other = pixels(20, 1, 40, 30), pixels(20, 1, 40, 30, seed=1)
    other[7] = one[7]
    assert torch.equal(features_of(made, one)[7], features_of(made, other)[7])


def test_another_size_is_part_of_the_plan(made):
    larger = spec_of("timm", Path(made.weights or ""), variant=made.variant, side=96)
    assert digest(made) != digest(larger)
    assert features_of(larger, pixels(2, 1, 40, 40)).isfinite().all()


def test_no_other_machine_is_asked_for_anything(made, monkeypatch):
    asked: list[Any] = []
    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(socket, name, lambda *args, **kwargs: asked.append(args))
    monkeypatch.setattr(socket.socket, "connect", lambda *args: asked.append(args))
    features_of(made, pixels(1, 1, 20, 20))
    assert asked == []
    with pytest.raises(Exception):  # noqa: B017 # the traps are real: the library's own way asks
        timm.create_model(made.variant, pretrained=True)
    assert asked


@pytest.mark.parametrize("variant", ["hf-hub:timm/resnet18", "local-dir:models", "resnet1"])
def test_names_that_timm_does_not_know_by_heart_are_refused(tmp_path, variant):
    path = write_weights(tmp_path / "public.safetensors", VARIANTS[2])
    with pytest.raises(ParameterError):
        spec_of("timm", path, variant=variant)


def test_weights_of_another_model_are_refused(tmp_path):
    path = write_weights(tmp_path / "public.safetensors", VARIANTS[2])
    with pytest.raises(DataError):
        features_of(spec_of("timm", path, variant=VARIANTS[0]), pixels(1, 1, 20, 20))
    tensors = load_file(path)
    del tensors[next(name for name in tensors if "running_mean" in name)]
    save_file(tensors, path)
    with pytest.raises(DataError):
        features_of(spec_of("timm", path, variant=VARIANTS[2]), pixels(1, 1, 20, 20))


def test_pickles_are_not_opened(tmp_path):
    path = tmp_path / "public.pth"
    torch.save(timm.create_model(VARIANTS[2]).state_dict(), path)
    with pytest.raises(DataError):
        features_of(spec_of("timm", path, variant=VARIANTS[2]), pixels(1, 1, 20, 20))
