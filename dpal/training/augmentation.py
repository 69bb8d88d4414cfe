"""Random views of images: moved by a few pixels, mirrored.

A view depends on its record and on coins that were tossed without looking at any record, so
that the average of a record's gradients over its views is still that record's alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dpal.errors import ParameterError
from dpal.planning.training_recipe import Augmentation
from dpal.randomness import BitSource


def view_generator(rng: BitSource) -> torch.Generator:
    """A generator of views, on the CPU whatever the model's device.

    Args:
      rng: seeds it with one word. Views are no privacy noise: nothing is hidden behind them.
    """
    return torch.Generator().manual_seed(int(rng.words(1)[0]))


def require_images(augmentation: Augmentation, input_shape: tuple[int, ...]) -> None:
    """Requires records that have such views.

    Raises:
      ParameterError: views are asked for and records are no images, or too small ones.
    """
    if augmentation.flip and len(input_shape) != 3:
        raise ParameterError(
            f"augmentation.flip mirrors images, and records of shape {tuple(input_shape)} are "
            "none; leave it out"
        ).about("augmentation.flip")
    require_shift(augmentation.shift, input_shape, setting="augmentation.shift")


def require_shift(shift: int, input_shape: tuple[int, ...], *, setting: str) -> None:
    """Requires records that can be moved by so many pixels.

    Args:
      shift: most pixels; 0 moves nothing.
      input_shape: of a record.
      setting: what asks for it.

    Raises:
      ParameterError: records are no images, or too small ones.
    """
    if not shift:
        return
    if len(input_shape) != 3:
        raise ParameterError(
            f"{setting} {shift} moves images, and records of shape {tuple(input_shape)} are none; "
            "leave it out"
        ).about(setting)
    side = min(input_shape[1:])
    if shift >= side:
        raise ParameterError(
            f"{setting} {shift} is not below the side of the images, {side} pixels; a tenth of the "
            "side is usual"
        ).about(setting)


def augment(inputs: Tensor, augmentation: Augmentation, *, generator: torch.Generator) -> Tensor:
    """Draws the views of a batch.

    Every view is moved by a whole number of pixels, uniform in -shift ... shift, up or down
    and left or right; what moves in is the image mirrored at its edge. Then it is mirrored
    left to right with chance 1/2. All draws are independent of each other and of the images.

    Args:
      inputs: (n, channels, height, width), of any type and on any device.
      augmentation: which views, and how many.
      generator: on the CPU; `view_generator` makes one.

    Returns:
      (n * multiplicity, channels, height, width) of the same type and on the same device; the
      views of a record lie next to each other.

    Raises:
      ParameterError: records are no images, or too small to be moved so far.
    """
    require_images(augmentation, tuple(inputs.shape[1:]))
    if not (augmentation.flip or augmentation.shift):
        return inputs
    height, width = inputs.shape[2:]
    views = len(inputs) * augmentation.multiplicity
    down, right = torch.randint(
        -augmentation.shift, augmentation.shift + 1, (2, views, 1), generator=generator
    )
    rows = _mirrored(torch.arange(height) + down, height)
    columns = _mirrored(torch.arange(width) + right, width)
    if augmentation.flip:
        flipped = torch.randint(2, (views, 1), generator=generator) == 1
        columns = torch.where(flipped, columns.flip(1), columns)
    records = torch.arange(len(inputs)).repeat_interleave(augmentation.multiplicity)
    channels = torch.arange(inputs.shape[1])
    # One gather from the records themselves: no padded or repeated copy of them is made.
    views_of = (
        records[:, None, None, None],
        channels[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    )
    gathered = tuple(index.to(inputs.device) for index in views_of)
    if (
        inputs.dtype == torch.uint16
    ):  # not every device gathers these; the same bits, signed, all do
        return inputs.view(torch.int16)[gathered].view(torch.uint16)
    return inputs[gathered]


def _mirrored(position: Tensor, side: int) -> Tensor:
    """Positions beyond an edge are mirrored at it; the edge itself is not repeated."""
    return (side - 1) - ((side - 1) - position.abs()).abs()
