from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from dpal.errors import DataError
from dpal.models.architectures import ARCHITECTURES
from dpal.models.build_model import build_model
from dpal.models.layers import ScalarGain
from dpal.models.nfnet import NFNet
from tests.models.checks import (
    assert_all_train,
    assert_mc_dropout,
    assert_own_dropout,
    assert_records_apart,
    count_of,
    images,
    shapes_of,
    spec_of,
)

WIDTHS, DEPTHS, GROUP = (16, 24, 32, 32), (1, 2, 1, 2), 4


def small(spec):
    """The same net, thin."""
    return NFNet(spec, widths=WIDTHS, depths=DEPTHS, group_width=GROUP)


@pytest.fixture(autouse=True)
def _thin(monkeypatch, request):
    if request.node.name != "test_f0_has_as_many_parameters_as_published":
        model = replace(ARCHITECTURES["nfnet_f0"], made_by=small)
        monkeypatch.setitem(ARCHITECTURES, "nfnet_f0", model)


def test_f0_has_as_many_parameters_as_published():
    spec = spec_of("nfnet_f0", (3, 192, 192), classes=14)
    model: Any = shapes_of(spec)
    assert count_of(spec) == 68_459_306
    assert len(list(model.parameters())) == 233  # tensors, as counted on the published code
    inputs = torch.zeros(2, 3, 192, 192, device="meta")
    assert model.stem(inputs).shape == (2, 128, 48, 48)
    assert model.blocks(model.stem(inputs)).shape == (2, 1536, 6, 6)
    assert model(inputs).shape == (2, 14)


def published(channels: int = 3, classes: int = 10) -> dict[str, dict[str, np.ndarray]]:
    """Parameters as the published file has them: by module, inputs before outputs."""
    modules: dict[str, dict[str, np.ndarray]] = {}

    def draw(name, *shape, scale=1.0, centre=0.0):
        generator = np.random.default_rng(zlib.crc32(name.encode()))
        return (centre + scale * generator.normal(size=shape)).astype(np.float32)

    def convolution(name, kernel, wide_in, wide_out):
        modules[f"NFNet/~/{name}"] = {
            "w": draw(f"{name}w", kernel, kernel, wide_in, wide_out),
            "gain": draw(f"{name}g", wide_out, scale=0.1, centre=1.0),
            "bias": draw(f"{name}b", wide_out, scale=0.1),
        }

    def linear(name, wide_in, wide_out):
        modules[f"NFNet/~/{name}"] = {
            "w": draw(f"{name}w", wide_in, wide_out, scale=wide_in**-0.5),
            "b": draw(f"{name}b", wide_out, scale=0.1),
        }

    for index, wide in enumerate((channels, 16, 32, 64)):
        convolution(f"stem_conv{index}", 3, wide, (16, 32, 64, WIDTHS[0] // 2)[index])
    wide_in, index = WIDTHS[0] // 2, 0
    for stage, wide in enumerate(WIDTHS):
        for place in range(DEPTHS[stage]):
            block = f"nf_block_{index}" if index else "nf_block"
            modules[f"NFNet/~/{block}"] = {"skip_gain": draw(block, scale=0.1, centre=0.7)}
            for name, kernel, first, second in (
                ("conv0", 1, wide_in, wide // 2),
                ("conv1", 3, GROUP, wide // 2),
                ("conv1b", 3, GROUP, wide // 2),
                ("conv2", 1, wide // 2, wide),
            ):
                convolution(f"{block}/~/{name}", kernel, first, second)
            if not place:
                convolution(f"{block}/~/conv_shortcut", 1, wide_in, wide)
            linear(f"{block}/~/squeeze_excite/~/linear", wide, wide // 2)
            linear(f"{block}/~/squeeze_excite/~/linear_1", wide // 2, wide)
            wide_in, index = wide, index + 1
    convolution("final_conv", 1, wide_in, 2 * wide_in)
    linear("linear", 2 * wide_in, classes)
    return modules


def by_hand(modules, inputs):
    """The paper's net on parameters of the published layout, in float64."""

    def gelu(signal):
        return 1.7015043497085571 * functional.gelu(signal, approximate="tanh")

    def convolve(signal, name, stride=1):
        parameters = modules[f"NFNet/~/{name}"]
        weight = parameters["w"].astype(np.float64)
        centred = weight - weight.mean(axis=(0, 1, 2))
        filters = centred / np.sqrt(np.square(centred).sum(axis=(0, 1, 2))) * parameters["gain"]
        kernel = len(weight)
        zeros = []
        for side in (signal.shape[3], signal.shape[2]):
            total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
            zeros += [total // 2, total - total // 2]
        return functional.conv2d(
            functional.pad(signal, zeros),
            torch.from_numpy(filters.transpose(3, 2, 0, 1).copy()),
            torch.from_numpy(parameters["bias"].astype(np.float64)),
            stride=stride,
            groups=signal.shape[1] // weight.shape[2],
        )

    def dense(signal, name):
        parameters = {k: v.astype(np.float64) for k, v in modules[f"NFNet/~/{name}"].items()}
        return signal @ torch.from_numpy(parameters["w"]) + torch.from_numpy(parameters["b"])

    signal = gelu(convolve(inputs, "stem_conv0", 2))
    signal = gelu(convolve(signal, "stem_conv1"))
    signal = convolve(gelu(convolve(signal, "stem_conv2")), "stem_conv3", 2)
    index = 0
    for stage, depth in enumerate(DEPTHS):
        for place in range(depth):
            block = f"nf_block_{index}" if index else "nf_block"
            stride = 2 if stage and not place else 1
            # A stage begins after all blocks of the one before (the first after none), and
            # a block after `place` of its own: each adds 0.2 squared to a variance of 1.
            before = place if place else (DEPTHS[stage - 1] if stage else 0)
            normal = gelu(signal) / np.sqrt(1 + 0.04 * before)
            if not place:
                shrunk = normal
                if stride == 2:
                    odd = [0, normal.shape[3] % 2, 0, normal.shape[2] % 2]
                    total = functional.avg_pool2d(functional.pad(normal, odd), 2)
                    seen = functional.pad(torch.ones_like(normal), odd)
                    shrunk = total / functional.avg_pool2d(seen, 2)
                signal = convolve(shrunk, f"{block}/~/conv_shortcut")
            inner = convolve(gelu(convolve(normal, f"{block}/~/conv0")), f"{block}/~/conv1", stride)
            inner = convolve(gelu(convolve(gelu(inner), f"{block}/~/conv1b")), f"{block}/~/conv2")
            gate = dense(inner.mean((2, 3)), f"{block}/~/squeeze_excite/~/linear").relu()
            gate = dense(gate, f"{block}/~/squeeze_excite/~/linear_1").sigmoid()
            gain = float(modules[f"NFNet/~/{block}"]["skip_gain"])
            signal = signal + 0.2 * gain * 2 * gate[:, :, None, None] * inner
            index += 1
    return dense(gelu(convolve(signal, "final_conv")).mean((2, 3)), "linear")


def flat(modules):
    return {f"{name}/{key}": value for name, part in modules.items() for key, value in part.items()}


@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 50, 37), (1, 33, 16)])
def test_published_weights_give_the_published_function(tmp_path, shape):
    modules, path = published(shape[0]), tmp_path / "F0.npz"
    np.savez(path, **flat(modules))
    model = build_model(spec_of("nfnet_f0", shape, weights=str(path))).double()
    inputs = images(2, shape).double()
    with torch.no_grad():
        expected, found = by_hand(modules, inputs), model(inputs)
    assert expected.std() > 0.1
    # Parameters are float32, exactly; filters are made from them in float64 in both.
    assert torch.allclose(found, expected, atol=1e-9)


def test_another_number_of_classes_leaves_a_fresh_classifier(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, **flat(published(classes=1000)))
    loaded = build_model(spec_of("nfnet_f0", weights=str(path))).state_dict()
    fresh = build_model(spec_of("nfnet_f0")).state_dict()
    same = {name for name in fresh if torch.equal(loaded[name], fresh[name])}
    assert same == {"classify.weight", "classify.bias"}


def test_a_safetensors_file_has_our_own_names(tmp_path):
    other = build_model(spec_of("nfnet_f0", seed=1)).state_dict()
    save_file(other, tmp_path / "weights.safetensors")
    spec = spec_of("nfnet_f0", weights=str(tmp_path / "weights.safetensors"))
    loaded = build_model(spec).state_dict()
    assert all(torch.equal(loaded[name], other[name]) for name in other)


def without(name):
    return lambda arrays: arrays.pop(name)


def widened(arrays):
    name = "NFNet/~/stem_conv0/w"
    arrays[name] = arrays[name][:, :, :1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without("NFNet/~/nf_block_3/~/conv1b/gain"), r"it lacks blocks.3.conv1b.gain"),
        (lambda a: a.update({"NFNet/~/nf_block_9/skip_gain": np.zeros((), "f4")}), "blocks.9"),
        (widened, r"stem.1.weight has shape \(16, 1, 3, 3\), the model's \(16, 3, 3, 3\)"),
        (lambda a: a["NFNet/~/final_conv/bias"].fill(np.nan), "final.0.bias holds values"),
        (lambda a: a.clear(), "holds nothing"),
    ],
)
def test_a_file_of_another_net_is_refused(tmp_path, change, sentence):
    arrays, path = flat(published()), tmp_path / "weights.npz"
    change(arrays)
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=sentence):
        build_model(spec_of("nfnet_f0", weights=str(path)))


def test_a_file_that_is_not_there_is_said(tmp_path):
    for name in ("no.npz", "no.safetensors"):
        with pytest.raises(DataError, match="is not there"):
            build_model(spec_of("nfnet_f0", weights=str(Path(tmp_path / name))))


def opened(model):
    """With skip gains where blocks are seen: they begin at 0."""
    for part in model.modules():
        if isinstance(part, ScalarGain):
            torch.nn.init.ones_(part.gain)
    return model


def test_blocks_begin_as_their_shortcuts():
    model: Any = build_model(spec_of("nfnet_f0"))
    inputs = images(2)
    signal = model.stem(inputs)
    first = model.blocks[0]
    shortcut = first.conv_shortcut(first.activation(signal))
    assert torch.allclose(first(signal), shortcut, atol=1e-6)
    assert not torch.allclose(opened(model).blocks[0](signal), shortcut, atol=1e-3)


def test_every_record_is_on_its_own_and_every_parameter_trains():
    model, inputs = opened(build_model(spec_of("nfnet_f0"))), images(3)
    assert_records_apart(model, inputs)
    assert_all_train(model, inputs)
    assert_mc_dropout(model, inputs)


def test_units_drop_before_the_classifier():
    assert_own_dropout("nfnet_f0")
