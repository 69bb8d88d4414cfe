"""What records of a public file look like on average, channel by channel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpal.data.decoded_ahead import decoded_ahead
from dpal.data.readers import apply_extractor, raw_batches, to_input
from dpal.data.sources import Content, Role, Source
from dpal.errors import DataError

Floats = NDArray[np.float64]


def public_statistics(source: Source) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measures mean and standard deviation in one pass; memory holds one batch.

    Args:
      source: public records, such as a validation set.

    Returns:
      The mean and the standard deviation of each channel or feature, on the scale of a
      model's inputs. A constant one gets the standard deviation 1: it is centred, not scaled.

    Raises:
      DataError: the source is a pool, holds texts, or cannot be read.

    Source:
      Merging of batches: Chan, Golub & LeVeque (1983), "Algorithms for computing the sample
      variance".
    """
    if source.role is Role.POOL:
        raise DataError(
            f"{source.name} is the pool, and its statistics are private; measure them on public "
            "records, or give constants"
        )
    if source.content is Content.TEXT:
        raise DataError(f"{source.name} holds texts, which have no mean; leave normalisation out")
    count, mean, squares = 0, np.zeros(1), np.zeros(1)
    for _, decoded in decoded_ahead(source, raw_batches(source, [source.content.value])):
        records = apply_extractor(source, decoded)
        values = _by_channel(to_input(records).double().numpy())
        here, here_mean = values.shape[1], values.mean(axis=1)
        apart = here_mean - mean
        both = count + here
        squares = squares + ((values - here_mean[:, None]) ** 2).sum(axis=1)
        squares = squares + apart**2 * (count * here / both)
        mean, count = mean + apart * (here / both), both
    if not count:
        raise DataError(f"{source.name} has no rows; statistics need some")
    std = np.sqrt(squares / count)
    std[std == 0] = 1.0
    return tuple(mean.tolist()), tuple(std.tolist())


def _by_channel(records: Floats) -> Floats:
    """(n, channels, ...) as (channels, values)."""
    return np.moveaxis(records, 1, 0).reshape(records.shape[1], -1)
