"""Physical batches of few different sizes.

Poisson batches differ in size from step to step, and convolution libraries keep a plan
for every size they have met: memory grew by a gigabyte over a campaign. Chunks are
therefore filled up to a multiple of `GRAIN` with blank records whose results are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:  # models that are served chunk records, and read no pool
    from dpal.data.labeled_records import Batch

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
    for start in range(0, len(inputs), physical_batch):
        rows = slice(start, min(start + physical_batch, len(inputs)))
        yield rows, _filled(inputs[rows], physical_batch)


def group_chunks(
    inputs: Batch, sizes: Sequence[int], *, physical_batch: int
) -> Iterator[tuple[slice, Tensor, list[int]]]:
    """Splits records into filled-up chunks that break up no group.

    Args:
      inputs: (n, *input_shape); the records of a group stand side by side.
      sizes: records of each group, in order; n in all.
      physical_batch: most records of `inputs` in a chunk, unless one group has more.

    Yields:
      What `chunks` does, and the sizes of the chunk's groups.
    """
    start, count, members = 0, 0, list[int]()
    for size in [*sizes, 0]:  # the 0 stands for the end
        if members and (size == 0 or count + size > physical_batch):
            rows = slice(start, start + count)
            yield rows, _filled(inputs[rows], physical_batch), members
            start, count, members = rows.stop, 0, []
        members.append(size)
        count += size


def _filled(part: Tensor, physical_batch: int) -> Tensor:
    missing = -len(part) % min(GRAIN, physical_batch)
    return torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) if missing else part
