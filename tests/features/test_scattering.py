from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpal.errors import DataError, ParameterError
from dpal.features.scattering import Scattering, _bank

PLAIN = Scattering()  # two scales, eight orientations


def picture(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


# Kymatio 0.3.0, `Scattering2D(J=2, shape=(28, 28), L=8)` of `formula_picture()`, by
# (coefficient, row, column). Its filters are in single precision: up to 2e-5 apart from ours.
KYMATIO = {
    (0, 0, 0): 0.1621245,
    (0, 3, 4): 0.5057280,
    (1, 3, 3): 0.0645165,
    (5, 6, 0): 0.0387434,
    (8, 2, 2): 0.0480481,
    (9, 3, 3): 0.0127878,
    (12, 0, 6): 0.0206666,
    (16, 5, 5): 0.0142628,
    (17, 3, 3): 0.0038742,
    (24, 1, 2): 0.0044170,
    (44, 3, 4): 0.0030939,
    (80, 6, 6): 0.0081894,
}


def formula_picture() -> torch.Tensor:
    down, across = np.arange(28)[:, None], np.arange(28)[None]
    values = (7 * down**2 + 13 * across + 5 * down * across) % 256
    return torch.from_numpy((values / 255).astype(np.float32))[None, None]


def test_coefficients_are_those_of_another_implementation():
    ours = PLAIN(formula_picture())[0, 0]
    assert ours.shape == (81, 7, 7)
    for place, theirs in KYMATIO.items():
        assert ours[place].item() == pytest.approx(theirs, abs=2e-5, rel=1e-4)


def wavelet_at(side: int, scale: int, turn: int) -> np.ndarray:
    """A Morlet wavelet with eight orientations straight from its definition, periodic."""
    angle, deviation = (3 - turn) * math.pi / 8, 0.8 * 2**scale
    waves, bells = np.zeros((side, side), complex), np.zeros((side, side))
    for y in range(side):
        for x in range(side):
            for down in (y - 2 * side, y - side, y, y + side):
                for across in (x - 2 * side, x - side, x, x + side):
                    along = down * math.cos(angle) + across * math.sin(angle)
                    beside = across * math.cos(angle) - down * math.sin(angle)
                    bell = math.exp(-(along**2 + beside**2 / 4) / (2 * deviation**2))
                    bells[y, x] += bell
                    waves[y, x] += bell * np.exp(1j * 0.75 * math.pi / 2**scale * along)
    waves -= bells * waves.sum() / bells.sum()
    return waves / (2 * math.pi * deviation**2 * 2)


def convolved(plane: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Periodic convolution as a sum over all shifts."""
    total = np.zeros(plane.shape, dtype=complex)
    for down in range(len(kernel)):
        for across in range(len(kernel)):
            total += kernel[down, across] * np.roll(plane, (down, across), (0, 1))
    return total


def averaged(plane: np.ndarray, scales: int) -> np.ndarray:
    """Gaussian average at every 2**scales-th place, without the margin."""
    block, side, deviation = 2**scales, len(plane), 0.8 * 2 ** (scales - 1)
    apart = (np.arange(side) + side // 2) % side - side // 2
    bell = np.exp(-(apart**2) / (2 * deviation**2)) / (math.sqrt(2 * math.pi) * deviation)
    return convolved(plane, np.outer(bell, bell)).real[block:-block:block, block:-block:block]


def test_one_scale_equals_slow_convolution():
    """Nothing is approximated: the wavelets' modulus is averaged where it was computed."""
    image = picture(1, 1, 12, 12)
    ours = Scattering(scales=1)(image)[0, 0].numpy()
    padded = np.pad(image[0, 0].numpy().astype(float), 2, mode="reflect")
    slow = [averaged(padded, 1)]
    slow += [averaged(np.abs(convolved(padded, wavelet_at(16, 0, t))), 1) for t in range(8)]
    assert ours == pytest.approx(np.stack(slow), abs=2e-6)


def test_thinning_out_costs_little_accuracy():
    """Two orders, with no place left out before the end, by slow convolution."""
    image = picture(1, 1, 12, 12)
    padded = np.pad(image[0, 0].numpy().astype(float), 4, mode="reflect")
    ours = PLAIN(image)[0, 0].numpy()
    for first, second in ((0, 3), (5, 5), (6, 1)):  # others are 10 % apart or more
        inner = np.abs(convolved(padded, wavelet_at(20, 0, first)))
        outer = np.abs(convolved(padded, wavelet_at(20, 1, first)))
        twice = np.abs(convolved(inner, wavelet_at(20, 1, second)))
        assert apart(averaged(inner, 2), ours[1 + first]) < 1e-5
        assert apart(averaged(outer, 2), ours[9 + first]) < 0.03
        assert apart(averaged(twice, 2), ours[17 + 8 * first + second]) < 0.03


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Distance, relative to the first."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(one))


def test_filters_cover_the_plane_of_frequencies_and_amplify_none_of_them():
    """Littlewood-Paley: what the filters keep of a frequency's energy, for real images."""
    bank = _bank(36, 36, 2, 8)
    spectra = torch.cat([bank.wavelets[0][scale] for scale in (0, 1)]).real
    mirrored = spectra.flip(1, 2).roll((1, 1), (1, 2))
    low = np.fft.fft(averaging_kernel())
    kept = np.outer(np.abs(low) ** 2, np.abs(low) ** 2)
    kept += 0.5 * (spectra**2 + mirrored**2).sum(dim=0).numpy()
    radius = np.hypot(*np.meshgrid(np.fft.fftfreq(36), np.fft.fftfreq(36)))
    assert kept.max() < 1.02  # hence distances between images never grow by more than 1 %
    assert kept[radius < 0.45].min() > 0.35


def averaging_kernel() -> np.ndarray:
    apart = (np.arange(36) + 18) % 36 - 18
    return np.exp(-(apart**2) / (2 * 1.6**2)) / (math.sqrt(2 * math.pi) * 1.6)


def test_moving_an_image_by_a_block_moves_its_features_by_one_place():
    image = torch.zeros(1, 1, 56, 56)
    image[..., 24:32, 26:33] = picture(8, 7)
    moved = image.roll((4, -8), (2, 3))
    assert PLAIN(moved).roll((-1, 2), (3, 4)) == pytest.approx(PLAIN(image), abs=1e-5)


def test_small_shifts_change_features_less_than_pixels():
    image = torch.zeros(1, 1, 32, 32)
    image[..., 8:24, 8:24] = picture(16, 16)
    moved = image.roll(1, 3)
    features = apart(PLAIN(image).numpy(), PLAIN(moved).numpy())
    assert features < 0.4 * apart(image.numpy(), moved.numpy())


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 999), blocks=st.integers(3, 6))
def test_transposing_an_image_transposes_its_features_and_mirrors_directions(seed, blocks):
    """A wavelet at angle a, transposed, is the one at 90 degrees - a."""
    image = picture(1, 1, 4 * blocks, 4 * blocks, seed=seed)
    straight, across = PLAIN(image)[0, 0], PLAIN(image.transpose(2, 3))[0, 0].transpose(1, 2)
    turned = [(2 - turn) % 8 for turn in range(8)]
    order = [0, *(1 + t for t in turned), *(9 + t for t in turned)]
    order += [17 + 8 * first + second for first in turned for second in turned]
    assert across[order] == pytest.approx(straight, abs=2e-6)


def test_a_flat_image_has_its_grey_and_nothing_else():
    features = PLAIN(torch.full((1, 1, 28, 28), 0.7))[0, 0]
    assert features[0] == pytest.approx(torch.full((7, 7), 0.7), abs=1e-5)
    assert features[1:].abs().max() < 1e-5


def test_twice_the_contrast_is_twice_the_features():
    image = picture(2, 3, 20, 16)
    assert PLAIN(2 * image) == pytest.approx(2 * PLAIN(image), abs=1e-6)


@pytest.mark.parametrize("others", [1, 15, 40])
def test_an_image_has_the_same_features_in_any_company(others):
    """To the last bit, so that nothing about other records shows in them."""
    image = picture(1, 1, 28, 28)
    crowd = torch.cat([picture(others, 1, 28, 28, seed=1), image, picture(3, 1, 28, 28, seed=2)])
    blank = torch.cat([torch.zeros(others, 1, 28, 28), image, torch.zeros(3, 1, 28, 28)])
    assert torch.equal(PLAIN(crowd)[others], PLAIN(blank)[others])
    assert PLAIN(crowd)[others] == pytest.approx(PLAIN(image)[0], abs=1e-6)


def test_channels_do_not_meet():
    image = picture(1, 3, 32, 32)
    alone = torch.cat([PLAIN(image[:, one : one + 1]) for one in range(3)], dim=1)
    assert PLAIN(image) == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize(
    ("scales", "orientations", "sides", "shape"),
    [
        (1, 8, (28, 28), (9, 14, 14)),
        (2, 8, (28, 28), (81, 7, 7)),
        (2, 8, (30, 33), (81, 8, 9)),
        (2, 4, (16, 9), (25, 4, 3)),
        (3, 8, (64, 32), (217, 8, 4)),
    ],
)
def test_shapes(scales, orientations, sides, shape):
    transform = Scattering(scales=scales, orientations=orientations)
    assert transform(picture(2, 1, *sides)).shape == (2, 1, *shape)
    assert transform(picture(0, 1, *sides)).shape == (0, 1, *shape)
    assert transform.coefficients == shape[0]


@pytest.mark.parametrize("shape", [(2, 1, 8, 28), (2, 12), (2, 28, 28)])
def test_records_that_are_no_images_are_refused(shape):
    with pytest.raises(DataError, match="sides above 8"):
        PLAIN(torch.zeros(shape))


def test_a_transform_needs_a_scale():
    with pytest.raises(ParameterError, match="scales"):
        Scattering(scales=0)
