"""Views of images: what they may be, how likely each is, and that records stay apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from dpal.errors import ParameterError
from dpal.planning.training_recipe import Augmentation
from dpal.training.augmentation import augment, require_images, require_shift, view_generator
from tests.conftest import RepeatableBits, having

ALARM = 1e-6  # chance that a right law is called wrong, in each of the tests below


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def allowed(image: np.ndarray, augmentation: Augmentation) -> set[bytes]:
    """All views of an image, by padding, cutting and mirroring with numpy."""
    shift, (_, height, width) = augmentation.shift, image.shape
    padded = np.pad(image, ((0, 0), (shift, shift), (shift, shift)), mode="reflect")
    steps = range(2 * shift + 1)
    cuts = [padded[:, y : y + height, x : x + width] for y in steps for x in steps]
    if augmentation.flip:
        cuts += [cut[:, :, ::-1] for cut in cuts]
    return {np.ascontiguousarray(cut).tobytes() for cut in cuts}


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 4),
    channels=st.integers(1, 3),
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    multiplicity=st.integers(1, 5),
    flip=st.booleans(),
    shift=st.integers(0, 5),
    dtype=st.sampled_from([torch.uint8, torch.float32]),
    seed=st.integers(0, 2**32),
)
def test_every_view_is_one_that_padding_and_cutting_gives(
    count, channels, height, width, multiplicity, flip, shift, dtype, seed
):
    shift = min(shift, height - 1, width - 1)
    if not (flip or shift):
        multiplicity = 1
    augmentation = Augmentation(multiplicity=multiplicity, flip=flip, shift=shift)
    shape = (count, channels, height, width)
    images = torch.randint(256, shape, generator=generator(seed)).to(dtype)
    views = augment(images, augmentation, generator=generator(seed))
    assert views.shape == (count * multiplicity, channels, height, width)
    assert views.dtype == dtype
    for record in range(count):
        known = allowed(images[record].numpy(), augmentation)
        for view in views[record * multiplicity : (record + 1) * multiplicity]:
            assert view.numpy().tobytes() in known


def test_a_flip_keeps_the_pixels_of_a_record():
    images = torch.randint(256, (6, 3, 5, 4), generator=generator()).to(torch.uint8)
    views = augment(images, Augmentation(multiplicity=7, flip=True), generator=generator())
    ordered = images.flatten(1).sort(dim=1).values.repeat_interleave(7, dim=0)
    assert torch.equal(views.flatten(1).sort(dim=1).values, ordered)


def draws(augmentation: Augmentation, views: int, *, seed: int) -> np.ndarray:
    """What was drawn for each view, read off its middle: down, right and flipped, (views, 3)."""
    side = 2 * augmentation.shift + 5
    middle = side // 2
    image = torch.arange(side * side).reshape(1, 1, side, side)
    repeated = Augmentation(multiplicity=views, flip=augmentation.flip, shift=augmentation.shift)
    seen = augment(image, repeated, generator=generator(seed))[:, 0].numpy()
    flipped = seen[:, middle, middle + 1] < seen[:, middle, middle]
    down, right = np.divmod(seen[:, middle, middle], side)
    return np.stack([down - middle, right - middle, flipped], axis=1)


def looks_uniform(numbers: np.ndarray, cells: int) -> bool:
    """Pearson's test at a false alarm of ALARM."""
    counts = np.bincount(numbers, minlength=cells)
    expected = numbers.size / cells
    statistic = ((counts - expected) ** 2 / expected).sum()
    return counts.size == cells and statistic < chi2.isf(ALARM, cells - 1)


LAW = Augmentation(multiplicity=2, flip=True, shift=2)
VIEWS = 20_000


def number(drawn: np.ndarray) -> np.ndarray:
    """One number, below 50, for what was drawn for a view."""
    return ((drawn[:, 0] + 2) * 5 + drawn[:, 1] + 2) * 2 + drawn[:, 2]


def test_all_shifts_and_flips_are_equally_likely():
    assert looks_uniform(number(draws(LAW, VIEWS, seed=1)), 50)


def test_draws_of_neighbouring_views_are_independent():
    drawn = draws(LAW, VIEWS, seed=2)
    for axis, values in ((0, 5), (1, 5), (2, 2)):
        one = drawn[:, axis] - drawn[:, axis].min()
        pairs = one[::2] * values + one[1::2]
        assert looks_uniform(pairs, values**2)


def test_other_laws_are_found_out():
    """Power: expected statistics of 200 and more, where 130 is the bound."""
    drawn = draws(LAW, VIEWS, seed=3)
    kept = np.ones(VIEWS, dtype=bool)
    kept[::2] = drawn[::2, 0] != 2  # the largest shift half as likely as the others
    assert not looks_uniform(number(drawn[kept]), 50)
    together = drawn.copy()
    together[::5, 1] = together[::5, 0]  # one view in five moves along the diagonal
    assert not looks_uniform(number(together), 50)
    rarely = drawn[(drawn[:, 2] == 0) | (np.arange(VIEWS) % 5 > 0)]  # flips at 0.44
    assert not looks_uniform(number(rarely), 50)


@pytest.mark.parametrize("changed", [0, 2, 4])
def test_views_of_a_record_do_not_depend_on_the_others(changed):
    images = torch.randint(256, (5, 3, 8, 8), generator=generator()).to(torch.uint8)
    augmentation = Augmentation(multiplicity=4, flip=True, shift=3)
    before = augment(images, augmentation, generator=generator(7))
    images[changed] = 255 - images[changed]
    after = augment(images, augmentation, generator=generator(7))
    mine = slice(4 * changed, 4 * changed + 4)
    assert torch.equal(after[mine], 255 - before[mine])
    others = torch.ones(20, dtype=torch.bool)
    others[mine] = False
    assert torch.equal(before[others], after[others])


def test_without_flip_and_shift_a_record_is_its_view():
    images = torch.randn(3, 1, 4, 4, generator=generator())
    assert augment(images, Augmentation(), generator=generator()) is images
    features = torch.randn(3, 7, generator=generator())
    assert augment(features, Augmentation(), generator=generator()) is features


@pytest.mark.parametrize(
    ("shape", "augmentation", "sentence"),
    [
        ((7,), Augmentation(flip=True), r"\(7,\) are none"),
        ((2, 64), Augmentation(shift=1), r"\(2, 64\) are none"),
        ((1, 8, 4), Augmentation(shift=4), "shift 4 is"),
    ],
)
def test_records_without_views_are_refused(shape, augmentation, sentence):
    with pytest.raises(ParameterError, match=sentence):
        require_images(augmentation, shape)
    with pytest.raises(ParameterError, match=sentence):
        augment(torch.zeros(2, *shape), augmentation, generator=generator())


def test_a_plan_moves_images_by_less_than_their_side_and_nothing_else():
    moved: list[tuple[int, tuple[int, ...]]] = [(0, (8,)), (0, (1, 4, 6)), (3, (1, 4, 6))]
    for shift, shape in moved:
        require_shift(shift, shape, setting="student.shift")
    refused = having(parameter="student.shift")
    others: list[tuple[int, tuple[int, ...]]] = [
        (1, (8,)),
        (1, (2, 8)),
        (4, (1, 4, 6)),
        (4, (1, 6, 4)),
    ]
    for shift, shape in others:
        with pytest.raises(ParameterError, check=refused):
            require_shift(shift, shape, setting="student.shift")


def test_a_generator_is_seeded_by_one_word_of_the_stream():
    """Streams that differ give other views; the global generator is not touched."""
    before = torch.get_rng_state()
    one, two, again = (view_generator(RepeatableBits(seed)) for seed in (1, 2, 1))
    drawn = [torch.randint(2**60, (4,), generator=g).tolist() for g in (one, two, again)]
    assert drawn[0] == drawn[2] != drawn[1]
    augment(torch.zeros(2, 1, 4, 4), Augmentation(flip=True, shift=1), generator=one)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")
def test_views_are_the_same_on_an_accelerator():
    images = torch.randint(256, (5, 3, 8, 8), generator=generator()).to(torch.uint8)
    augmentation = Augmentation(multiplicity=4, flip=True, shift=3)
    here = augment(images, augmentation, generator=generator(7))
    there = augment(images.cuda(), augmentation, generator=generator(7))
    assert there.is_cuda
    assert torch.equal(there.cpu(), here)
