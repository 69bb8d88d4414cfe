from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dpal.errors import ParameterError
from dpal.models.build_model import build_model
from dpal.models.equivariant.basis import planar_basis, steerable_basis
from dpal.models.equivariant.convolution import SteerableConv2d
from dpal.models.equivariant.groups import D2, D4, PointGroup, transformed_grid
from dpal.models.equivariant.resnet9 import EquivariantResNet9
from dpal.models.spec import ModelSpec

SPEC = ModelSpec(name="equivariant_resnet9", input_shape=(3, 32, 32), classes=10)
GROUPS = [pytest.param(D2, id="D2"), pytest.param(D4, id="D4")]
# Some 9 * 104 products of size 1/30 each, in float32: a hundred roundings of 6e-8.
EXACT = 1e-5


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def turned(images: torch.Tensor, element) -> torch.Tensor:
    """Moves every pixel of (..., side, side) on its own, by its place from the centre."""
    side = images.shape[-1]
    result = torch.empty_like(images)
    for row in range(side):
        for column in range(side):
            place = np.array(element) @ (2 * row - side + 1, 2 * column - side + 1)
            new_row, new_column = (place + side - 1) // 2
            result[..., new_row, new_column] = images[..., row, column]
    return result


def channels_of(field: torch.Tensor, element, group: PointGroup) -> torch.Tensor:
    """Moves channel h of every regular field (n, fields * order, ...) to channel gh."""
    apart = field.unflatten(1, (-1, group.order))
    result = torch.empty_like(apart)
    for h, other in enumerate(group.elements):
        product = tuple(map(tuple, (np.array(element) @ np.array(other)).tolist()))
        result[:, :, group.elements.index(product)] = apart[:, :, h]
    return result.flatten(1, 2)


def missing_direction() -> np.ndarray:
    """What a band-limited 3x3 filter cannot have: the edges against the corners.

    The rings at radius 0 and 1 see centre, edges and corners as (1, 0, 0) and
    (., 1, exp(-(sqrt 2 - 1)^2 / 0.32)); everything of frequency 1 to 3 is there.
    """
    corner = math.exp(-((math.sqrt(2) - 1) ** 2) / 0.32)
    direction = np.array([[1, -corner, 1], [-corner, 0, -corner], [1, -corner, 1]])
    direction[[0, 0, 2, 2], [0, 2, 0, 2]] = 1
    return direction / np.linalg.norm(direction)


def test_the_groups_are_groups():
    assert (D2.order, D4.order) == (4, 8)
    for group in (D2, D4):
        matrices = np.array(group.elements)
        assert np.array_equal(matrices[0], np.eye(2))
        for g in range(group.order):
            assert np.array_equal(matrices[g] @ matrices[group.inverses[g]], np.eye(2))
            for h in range(group.order):
                assert np.array_equal(matrices[group.products[g, h]], matrices[g] @ matrices[h])
    assert len({*D4.elements}) == 8
    assert {*D2.elements} < {*D4.elements}


def test_moving_a_grid_moves_every_pixel():
    grid = torch.randn(2, 5, 5, generator=generator(), dtype=torch.float64)
    for element in D4.elements:
        assert np.array_equal(
            transformed_grid(grid.numpy(), element), turned(grid, element).numpy()
        )
    # One of them by hand: the first row becomes the first column, read upwards.
    square = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert transformed_grid(square, ((0, -1), (1, 0))).tolist() == [[2.0, 4.0], [1.0, 3.0]]


def test_a_field_of_d4_is_two_fields_of_d2():
    field = torch.arange(16.0).reshape(1, 16, 1, 1)
    for element in D2.elements:
        assert torch.equal(channels_of(field, element, D4), channels_of(field, element, D2))


def test_the_planar_basis_leaves_out_one_direction():
    flat = planar_basis(3).reshape(8, 9)
    assert np.allclose(flat @ flat.T, np.eye(8), atol=1e-14)
    assert np.allclose(flat @ missing_direction().ravel(), 0, atol=1e-14)
    # 1 + 7 + 13 harmonics in the rings at radius 0, 1 and 2.
    assert [len(planar_basis(side)) for side in (1, 3, 5)] == [1, 8, 21]
    with pytest.raises(ParameterError, match=r"side 4 .*centre"):
        planar_basis(4)


@pytest.mark.parametrize("from_regular", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("group", GROUPS)
def test_the_basis_is_all_that_commutes(group, from_regular):
    """The null space of the constraint, solved for numerically, is the same space."""
    order, channels = group.order, group.order if from_regular else 1
    unit = np.eye(order * channels * 9).reshape(-1, order, channels, 3, 3)
    rows = [np.einsum("uoixy,xy->uoi", unit, missing_direction()).reshape(len(unit), -1)]
    for g in range(order):
        # kappa(x) = rho_out(g) kappa(g^-1 x) rho_in(g)^-1 for all g.
        there = np.stack([turned(torch.from_numpy(u), group.elements[g]).numpy() for u in unit])
        out = group.products[group.inverses[g]]
        acted = there[:, out]
        if from_regular:
            acted = acted[:, :, out]
        rows.append((acted - unit).reshape(len(unit), -1))
    constraint = np.concatenate(rows, axis=1).T
    _, strengths, directions = np.linalg.svd(constraint.T @ constraint)
    solutions = directions[strengths < 1e-10]
    basis = steerable_basis(group, 3, from_regular=from_regular)
    flat = basis.reshape(len(basis), -1)
    assert len(solutions) == len(flat) == 8 * channels
    assert np.allclose(flat @ flat.T, np.eye(len(flat)), atol=1e-13)
    assert np.allclose(solutions.T @ solutions, flat.T @ flat, atol=1e-10)


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.parametrize("from_regular", [False, True])
@pytest.mark.parametrize("group", GROUPS)
def test_the_convolution_commutes_with_every_element(group, from_regular, kernel_size):
    layer = SteerableConv2d(2, 3, group=group, kernel_size=kernel_size, from_regular=from_regular)
    layer.draw_weights(generator())
    assert layer.bias is not None
    nn.init.normal_(layer.bias, generator=generator(1))
    images = torch.randn(2, 2 * (group.order if from_regular else 1), 7, 7, generator=generator(2))
    plain = layer(images)
    assert plain.shape == (2, 3 * group.order, 7, 7)
    for element in group.elements:
        inputs = turned(images, element)
        if from_regular:
            inputs = channels_of(inputs, element, group)
        expected = channels_of(turned(plain, element), element, group)
        assert torch.allclose(layer(inputs), expected, atol=EXACT)
    assert (plain - expected).abs().max() > 0.1  # so that the last element is seen to matter


def test_coefficients_and_filters_have_one_norm_and_gradients_are_projected():
    layer = SteerableConv2d(3, 5, group=D4, bias=False)
    layer.draw_weights(generator())
    filters, bias = layer.filters({"weight": layer.weight})
    assert bias is None
    assert filters.shape == (40, 24, 3, 3)
    assert torch.allclose(filters.norm(), layer.weight.norm(), rtol=1e-6)
    # Variance 1/fan_in: of 960 coefficients, hence +- 0.25 is more than five deviations.
    assert filters.var().item() * 24 * 9 == pytest.approx(1, abs=0.25)
    # Gradients: the transpose of the map, which is its inverse on filters that commute.
    (gradient,) = torch.autograd.grad((filters * filters.detach()).sum(), layer.weight)
    assert torch.allclose(gradient, layer.weight, atol=1e-6)


def test_the_published_parameter_counts():
    model = build_model(SPEC)
    counts = [m.weight.numel() for m in model.modules() if isinstance(m, SteerableConv2d)]
    assert counts == [144, 4_992, 10_816, 10_816, 32_448, 97_344, 48_672, 48_672]
    assert sum(p.numel() for p in model.parameters()) == 255_675
    norms = [m for m in model.modules() if isinstance(m, nn.GroupNorm)]
    assert [m.num_groups for m in norms] == [1, 1, 1, 1, 1, 3, 3, 3, 3, 3]


@pytest.fixture(scope="module")
def model() -> EquivariantResNet9:
    model = build_model(SPEC).eval()
    assert isinstance(model, EquivariantResNet9)
    return model


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=generator())


@torch.no_grad()
@pytest.mark.parametrize("element", D4.elements)
def test_the_first_half_commutes_with_all_of_d4(model, images, element):
    half = nn.Sequential(model.first, model.second, model.first_residual, model.third)
    expected = channels_of(turned(half(images), element), element, D4)
    # Ten normalised layers: each adds some roundings of values up to 10.
    assert torch.allclose(half(turned(images, element)), expected, atol=2 * EXACT)


@torch.no_grad()
def test_the_features_commute_with_d2_alone(model, images):
    plain = model.features(images)
    assert plain.shape == (2, 39, 4, 4)
    gaps = {
        element: (model.features(turned(images, element)) - turned(plain, element)).abs().max()
        for element in D4.elements
    }
    assert all(gaps[element] < 5 * EXACT for element in D2.elements)
    assert all(gaps[element] > 0.1 for element in D4.elements[4:])


@torch.no_grad()
def test_a_classifier_that_treats_quarters_alike_is_invariant(images):
    model: Any = build_model(SPEC).eval()
    plain = model(images)
    weights = model.classify.weight.unflatten(1, (39, 4))
    model.classify.weight.copy_(weights.mean(2, keepdim=True).expand_as(weights).flatten(1))
    alike = model(images)
    for element in D2.elements[1:]:
        assert torch.allclose(model(turned(images, element)), alike, atol=EXACT)
    assert (plain - alike).abs().max() > 0.01


@torch.no_grad()
def test_records_are_treated_apart(model, images):
    changed = images.clone()
    changed[1] = 1000.0
    assert torch.allclose(model(images)[:1], model(changed)[:1], atol=EXACT)


@torch.no_grad()
def test_dropout_is_before_the_classifier(images):
    wet: Any = build_model(ModelSpec(**{**vars(SPEC), "dropout": 0.5}))
    assert not torch.equal(wet(images), wet(images))
    assert torch.equal(wet.features(images), wet.features(images))
    assert torch.equal(wet.eval()(images), build_model(SPEC)(images))


def test_what_is_computed_is_not_saved_and_weights_repeat():
    one, same = build_model(SPEC).state_dict(), build_model(SPEC).state_dict()
    assert sum(value.numel() for value in one.values()) == 255_675
    assert all(torch.equal(one[key], same[key]) for key in one)
    other = build_model(ModelSpec(**{**vars(SPEC), "seed": 1})).state_dict()
    assert not torch.equal(one["third.0.weight"], other["third.0.weight"])


def test_images_of_other_sizes():
    for shape in [(1, 28, 28), (3, 24, 40)]:
        spec = ModelSpec(name="equivariant_resnet9", input_shape=shape, classes=3)
        assert build_model(spec)(torch.zeros(2, *shape)).shape == (2, 3)
    with pytest.raises(ParameterError, match=r"equivariant_resnet9 .*16x16"):
        build_model(ModelSpec(name="equivariant_resnet9", input_shape=(3, 12, 32), classes=3))
