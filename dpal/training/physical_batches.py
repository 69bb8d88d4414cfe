"""Physical batches of few different sizes.

Poisson batches differ in size from step to step, and convolution libraries keep a plan
for every size they have met: memory grew by a gigabyte over a campaign. Chunks are
therefore filled up to a multiple of `GRAIN` with blank records whose results are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dpal.data.records import Batch

GRAIN = 32


def chunks(inputs: Batch, *, physical_batch: int) -> Iterator[tuple[slice, Tensor]]:
    """Splits records into filled-up chunks.

    Args:
      inputs: (n, *input_shape): a tensor, or a batch that is read part by part.
      physical_batch: most records of `inputs` in a chunk.

    Yields:
      Which rows of `inputs` a chunk holds, and the chunk: these rows first, then blank
      records up to a multiple of GRAIN (or of `physical_batch`, if smaller).
    """
    grain = min(GRAIN, physical_batch)
    for start in range(0, len(inputs), physical_batch):
        rows = slice(start, min(start + physical_batch, len(inputs)))
        part = inputs[rows]
        missing = -len(part) % grain
        if missing:
            part = torch.cat([part, part.new_zeros(missing, *part.shape[1:])])
        yield rows, part
