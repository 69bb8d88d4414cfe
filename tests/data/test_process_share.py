from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpal.data.encoded_records import EncodedRecords
from dpal.data.labeled_records import LabeledSet, load_labeled
from dpal.data.process_share import Share
from dpal.errors import ParameterError
from tests.data.image_pools import ROWS, images, labeled_pool


@given(st.lists(st.integers(0, 2**40), unique=True, max_size=50), st.integers(1, 9))
def test_every_row_has_one_owner_whatever_else_is_labeled(numbers, processes):
    rows = np.array(sorted(numbers), dtype=np.int64)
    owned = [rows[Share(rank=rank, processes=processes).of(rows)] for rank in range(processes)]
    assert sorted(np.concatenate(owned)) == rows.tolist()
    fewer = rows[::2]
    for rank in range(processes):
        kept = fewer[Share(rank=rank, processes=processes).of(fewer)]
        assert np.array_equal(kept, owned[rank][np.isin(owned[rank], fewer)])


@pytest.mark.parametrize(("rank", "processes"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_that_does_not_exist_is_refused(rank, processes):
    with pytest.raises(ParameterError, match="processes"):
        Share(rank=rank, processes=processes)


@pytest.fixture(scope="module")
def image_pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return labeled_pool(folder, images(folder / "p.parquet", 2600), ROWS)


def shared(pool, scratch, *, processes: int, cache_mib: int) -> list[LabeledSet]:
    return [
        load_labeled(
            *pool,
            participation=lambda block: 0.5,
            cache_mib=cache_mib,
            scratch=scratch,
            share=Share(rank=rank, processes=processes),
        )
        for rank in range(processes)
    ]


@pytest.mark.parametrize("cache_mib", [1, 0])
@pytest.mark.parametrize("processes", [2, 11])
def test_shares_make_up_the_pool(image_pool, tmp_path, processes, cache_mib):
    """With 11 processes some of them own nothing."""
    whole = load_labeled(*image_pool)
    parts = shared(image_pool, tmp_path, processes=processes, cache_mib=cache_mib)
    assert isinstance(parts[0].inputs, EncodedRecords) is (cache_mib == 0)
    owner = np.array(ROWS) % processes
    assert (np.bincount(owner, minlength=processes) == 0).any() == (processes == 11)
    for rank, part in enumerate(parts):
        rows = np.flatnonzero(owner == rank)
        mine = torch.from_numpy(rows)
        assert part.share == Share(rank=rank, processes=processes)
        assert torch.equal(part.inputs[:], whole.inputs[mine])
        assert torch.equal(part.labels, whole.labels[mine])
        assert part.cohorts.tolist() == whole.cohorts[rows].tolist()
        assert part.participation is not None
        assert part.participation.tolist() == [0.5] * rows.size
        part.close()
